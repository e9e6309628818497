// The views: tabs for the parts of an inspection, and the panel that shows one of them, side by side if there are several.
import { el } from "./drawing.js";
import { SECTIONS } from "./parts.js";

const TABS = { unrolled: "Unrolled", gates: "Gates and states", gradients: "Gradient", attention: "Attention", beam: "Search", influence: "Influence", neighbours: "Neighbours", example: "A gate" };
const NONE = { attention: "This model has no attention.", beam: "This model searches for nothing: it does not write.", gates: "This network is not recurrent: it has no gates and no states.", gradients: "This network is not recurrent: no gradient goes through time." };

export function whose(one, all) {
  const name = new Set(all.map(other => other.run)).size > 1 ? one.run : "";
  return [name, one.changes.length ? "what if" : name ? "" : "original"].filter(Boolean).join(", ");
}

export function makeTabs(box, parts, chosen) {
  const names = SECTIONS.map(([name]) => name).filter(name => !parts || parts.includes(name));
  const tabs = names.map(name => el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", onclick: () => { show(name); chosen(name, true); } }, TABS[name]));
  function show(name) {
    tabs.forEach((tab, i) => {
      const on = names[i] === name;
      tab.setAttribute("aria-selected", on); tab.tabIndex = on ? 0 : -1;
      if (on) box.scrollLeft = tab.offsetLeft - box.offsetLeft - (box.clientWidth - tab.offsetWidth) / 2;  // where there is no room for all
    });
  }
  box.onkeydown = event => {
    const at = tabs.indexOf(document.activeElement), last = tabs.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault(); tabs[to].focus(); show(names[to]); chosen(names[to], false);
  };
  box.replaceChildren(...tabs);
  return { names, show };
}

const steered = panel => [...panel.querySelectorAll("select, input[type=range]")];
const rolled = panel => [...panel.querySelectorAll(".scroll")];

// A new answer does not change which cell, which order or which step somebody is looking at, nor where they scrolled to.
export function showPart(panel, name, found) {
  const [, title, render] = SECTIONS.find(([other]) => other === name), before = panel.dataset.part === name;
  const kept = before ? steered(panel).map(one => one.value) : [], places = before ? rolled(panel).map(one => [one.scrollLeft, one.scrollTop]) : [];
  const all = name === "example" ? found.slice(0, 1) : found, cards = all.map(one => [one, render(one)]).filter(([, card]) => card);
  const notes = [...new Set(found.flatMap(one => one.notes))].map(note => el("p", { class: "note faint" }, note));
  panel.replaceChildren(el("h2", {}, title), ...(cards.length
    ? [el("div", { class: "columns" }, cards.map(([one, card]) => el("div", { class: "card" }, all.length > 1 ? el("div", { class: "whose" }, whose(one, all)) : null, card)))]
    : [el("p", { class: "faint" }, NONE[name] ?? "There is nothing to show here for this text.")]), ...notes);
  panel.dataset.part = name;
  steered(panel).forEach((one, i) => {
    if (kept[i] === undefined || kept[i] === one.value) return;
    const usual = one.value;
    one.value = kept[i];
    if (one.value !== kept[i] && one.tagName === "SELECT") one.value = usual;
    one.dispatchEvent(new Event(one.tagName === "SELECT" ? "change" : "input"));
  });
  rolled(panel).forEach((one, i) => { if (places[i]) [one.scrollLeft, one.scrollTop] = places[i]; });
}
