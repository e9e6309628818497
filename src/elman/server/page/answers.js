// What a model says, task by task: a headline, and what is known token by token. Each is drawn from a prediction, from
// an inspection, or from both, whichever there is already; a change (what if) has an inspection alone.
import { el, svg, shown, short, percent, shade, key, tokens, onResize, fromTheRight } from "./drawing.js";
import { bars, bands } from "./parts.js";

const stepsOf = one => one?.unrolled?.flatMap(network => network.steps) ?? [];
const headline = (...parts) => el("p", { class: "headline", dir: "auto" }, parts);
const titled = (title, ...parts) => el("div", {}, el("h3", {}, title), parts);

// Classes as the text is read: a line for each of the most probable, over the tokens.
function reading(steps) {
  const box = el("div", { class: "scroll" });
  onResize(box, () => box.replaceChildren(readingAt(steps, box.clientWidth)));
  return box;
}
function readingAt(steps, space) {
  const most = {};
  steps.forEach(step => step.top.forEach(([label, chance]) => { most[label] = Math.max(most[label] ?? 0, chance); }));
  const last = new Map(steps.at(-1).top), names = Object.keys(most).sort((a, b) => (last.get(b) ?? 0) - (last.get(a) ?? 0) || most[b] - most[a]).slice(0, 4);
  const room = Math.min(150, 16 + 8 * Math.max(...names.map(name => [...name].length))), high = 120, left = 34, top = 10;
  const widest = Math.max(...steps.map(step => [...shown(step.token)].length));
  const wide = Math.max(widest > 1 ? 22 : 13, Math.min(96, (space - left - room - 4) / steps.length)), width = left + wide * steps.length + room;
  const x = i => left + wide * (i + .5), y = chance => top + (1 - chance) * high;
  const art = svg("svg", { width, height: high + 44, role: "img", "aria-label": `classes as the text is read: ${steps.map(step => `after ${shown(step.token)} ${step.own} ${percent(step.top[0]?.[1])}`).join(", ")}` });
  for (const chance of [0, .5, 1]) art.append(svg("line", { class: "grid", x1: left, x2: width - room, y1: y(chance), y2: y(chance) }), svg("text", { class: "small", x: left - 6, y: y(chance) + 4, "text-anchor": "end" }, `${100 * chance}`));
  const ends = [];
  names.forEach((name, n) => {
    const values = steps.map(step => new Map(step.top).get(name) ?? 0), hue = `reads r${n}`;
    art.append(svg("path", { class: hue, d: values.map((chance, i) => `${i ? "L" : "M"}${x(i)} ${y(chance)}`).join("") }));
    values.forEach((chance, i) => art.append(svg("circle", { class: hue, cx: x(i), cy: y(chance), r: 3.5 }, svg("title", {}, `${name} after ${shown(steps[i].token)}: ${percent(chance)}`))));
    ends.push([y(values.at(-1)), name, n]);
  });
  let lowest = -99;
  ends.sort((a, b) => a[0] - b[0]).forEach(([at, name, n], place) => {  // one below the other, and none below the picture
    lowest = Math.min(Math.max(at, lowest + 16), high + 33 - 16 * (ends.length - 1 - place));
    art.append(svg("text", { class: `ends r${n}`, x: width - room + 6, y: lowest + 4 }, short(name, 18)));
  });
  steps.forEach((step, i) => art.append(svg("text", { x: x(i), y: high + 34, "text-anchor": "middle" }, svg("title", {}, step.token), short(step.token, Math.max(2, Math.floor(wide / 8))))));
  return art;
}
function classify(prediction, one) {
  const steps = stepsOf(one), chances = prediction?.probabilities ? Object.entries(prediction.probabilities).sort((a, b) => b[1] - a[1]) : steps.at(-1)?.top ?? [];
  const said = prediction ? [prediction.prediction].flat() : [one.answer], sure = new Map(chances).get(said[0]);
  return [headline(said.map((label, i) => [i ? " · " : "", el("bdi", {}, label)]), said.length === 1 && sure !== undefined ? el("span", { class: "sure" }, percent(sure)) : null, said.length ? null : el("span", { class: "faint" }, "none of its labels")),
    el("div", { class: "pair" }, el("div", {}, bars(chances.slice(0, 6), said[0])), steps.some(step => step.top.length) ? el("div", {}, reading(steps)) : null)];
}

// A tag under each word; the word that is chosen shows what else it could be.
function tag(prediction, one) {
  const steps = stepsOf(one), words = prediction?.words ?? steps.map(step => step.token), tags = prediction ? prediction.prediction : steps.map(step => step.output);
  const chance = i => prediction?.probabilities?.[i] ?? steps[i]?.probability, others = el("div", { class: "others", "aria-live": "polite" });
  const list = el("div", { class: "tagged", role: "toolbar", "aria-label": "words with their tags; arrow keys go along", dir: fromTheRight(words) ? "rtl" : "ltr" });
  const buttons = words.map((word, i) => el("button", { type: "button", class: tags[i] === "O" ? "plain" : null, tabindex: i ? -1 : 0, title: percent(chance(i)), onclick: () => choose(i) },
    el("bdi", {}, shown(word)), el("span", { class: "tag" }, tags[i]), el("span", { class: "meter" }, el("i", { style: `width:${100 * (chance(i) ?? 0)}%` })), el("small", { dir: "ltr" }, percent(chance(i)))));
  function choose(i) {
    buttons.forEach((button, n) => { button.setAttribute("aria-pressed", n === i); button.tabIndex = n === i ? 0 : -1; });
    if (steps[i]) others.replaceChildren(el("h3", {}, "what “", el("bdi", {}, shown(words[i])), "” may be"), bars(steps[i].top.filter(([, p], n) => !n || p > 1e-6), tags[i]));
  }
  list.addEventListener("keydown", event => {
    const forward = getComputedStyle(list).direction === "rtl" ? -1 : 1, move = { ArrowRight: forward, ArrowLeft: -forward }[event.key], at = buttons.indexOf(document.activeElement);
    if (!move || at < 0) return;
    event.preventDefault();
    const to = buttons[Math.max(0, Math.min(buttons.length - 1, at + move))];
    to.focus(); to.click();
  });
  list.append(...buttons);
  const least = words.map((_, i) => i).sort((a, b) => (chance(a) ?? 1) - (chance(b) ?? 1))[0];  // the one that is least sure
  if (least !== undefined) choose(least);
  return [el("div", { class: "pair" }, list, others)];
}

// A language model: what was drawn, what it thought of the text, and what it expects next.
function lm(prediction, one, { written, text } = {}) {
  const steps = stepsOf(one).filter(step => step.origin === "start" || step.origin === "prompt");
  const read = steps.slice(0, -1).map(step => [step.output, step.probability]);
  if (steps[0]?.origin === "prompt") read.unshift([steps[0].token, null]);
  const line = written ?? one?.answer ?? "";
  return [headline(text ? el("span", { class: "prompt" }, text) : null, el("span", { class: "written" }, written === undefined && text && line && !/^[\s\p{P}]/u.test(line) ? ` ${line}` : line)),
    one ? el("div", { class: "pair" }, titled("what it expects next", bars(steps.at(-1)?.top ?? [])),
      read.length ? titled("what it read, and how probable each token was", tokens(read.map(([token]) => token), { colour: i => shade(read[i][1] ?? 0, 1.4), title: i => percent(read[i][1]), note: read.length <= 40 && read.some(([token]) => token.length > 1) ? i => percent(read[i][1]) : null }).box, key(() => [shade(0, 1), shade(1, 1.4)], "0", "1")) : null) : null];
}
const outputsOf = one => stepsOf(one).filter(step => step.output !== null);
function chances(one) {
  const steps = outputsOf(one);
  return steps.length ? titled("token by token, with probabilities", tokens(steps.map(step => step.output), { colour: i => shade(steps[i].probability ?? 0, 1.4), title: i => steps[i].top.map(([token, p]) => `${shown(token)} ${percent(p)}`).join("\n"), note: steps.length <= 60 ? i => percent(steps[i].probability) : null }).box) : null;
}
const wrote = (prediction, one) => headline((prediction ? prediction.text : one.answer) || el("span", { class: "faint" }, "(nothing)"));
const class2seq = (prediction, one) => [wrote(prediction, one), chances(one)];
const seq2seq = (prediction, one) => [wrote(prediction, one), one?.attention?.source.length ? bands(one.attention) : null, chances(one)];

const ANSWERS = { classify, tag, lm, class2seq, seq2seq };
export function answer(task, prediction, one, more) {
  return (ANSWERS[task] ?? class2seq)(prediction, one, more);
}
export function line(prediction, one) {  // for those who listen
  const value = prediction?.prediction ?? one?.answer ?? "";
  return Array.isArray(value) ? value.join(" ") : value;
}
