// The page of one inspection, or of several side by side, with its data in it.
import { el, short, shown } from "./drawing.js";
import { SECTIONS } from "./parts.js";
const DATA = JSON.parse(document.getElementById("data").textContent), BESIDE = DATA.length > 1;
const main = document.getElementById("main");
main.classList.toggle("beside", BESIDE);
const header = el("header", {}, el("div", { class: "over" }, "Elman inspection"), el("h1", { dir: "auto" }, DATA[0].text ? short(DATA[0].text, 120) : "from the beginning"));
main.replaceChildren(header);
const facts = one => el("div", { class: "card" }, BESIDE ? el("div", { class: "whose" }, whose(one)) : null,
  el("p", { class: "faint" }, [one.run, one.task, one.network].filter(Boolean).join(" · ")),
  el("p", {}, "text: ", el("bdi", {}, shown(one.text))), one.target === null ? null : el("p", {}, "given: ", el("bdi", {}, shown(one.target))),
  el("p", {}, "answer: ", el("b", { class: "answer" }, el("bdi", {}, shown(one.answer)))),
  one.changes.map(change => el("p", { class: "change" }, change)), one.notes.map(note => el("p", { class: "note faint" }, note)));
const whose = one => one.changes.length ? "what if" : one.run && new Set(DATA.map(other => other.run)).size > 1 ? one.run : "original";
main.append(el("div", { class: "columns" }, DATA.map(facts)));
const nav = el("nav", { "aria-label": "parts" });
for (const [name, title, render] of SECTIONS) {
  if (!DATA.some(one => one[name])) continue;
  const shownOnce = name === "example" ? DATA.slice(0, 1) : DATA;
  const cards = shownOnce.map(one => [one, render(one)]).filter(([, card]) => card);
  if (!cards.length) continue;
  nav.append(el("a", { href: `#${name}` }, title));
  main.append(el("section", { id: name, "aria-labelledby": `${name}-title` }, el("h2", { id: `${name}-title` }, title), el("div", { class: "columns" }, cards.map(([one, card]) => el("div", { class: "card" }, BESIDE && name !== "example" ? el("div", { class: "whose" }, whose(one)) : null, card)))));
}
header.append(nav);
document.documentElement.dataset.ready = "yes";
