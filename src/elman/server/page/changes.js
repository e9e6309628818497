// What if: tokens that are others or missing, units that are held, tokens that are forced, and another model beside it.
import { el, shown } from "./drawing.js";

const WRITES = ["lm", "class2seq", "seq2seq"];

export function makeChanges(box, changed) {
  let state = null, words = [], places = [];
  const summary = el("summary", {}, "What if …");
  const chips = el("ul", { class: "chips", "aria-label": "changes" });
  const field = (name, attributes) => el("input", { "aria-label": name, ...attributes });
  const token = el("select", { "aria-label": "which token" }), other = field("the token that stands there instead", { placeholder: "another token", size: 12, dir: "auto" });
  const gate = el("select", { "aria-label": "which gate or state" }), layer = el("select", { "aria-label": "in which layer" });
  const unit = field("which unit", { type: "number", min: 1, value: 1 }), value = field("held at", { type: "number", step: "any", value: 0 });
  const number = field("which written token", { type: "number", min: 1, value: 1 }), forced = field("the token that is written", { placeholder: "a token", size: 12, dir: "auto" });
  const against = el("select", { "aria-label": "another model beside it", onchange: () => change(() => { state.against = against.value; }) });
  const change = act => { act(); list(); changed(); };
  const form = (act, ...parts) => el("form", { class: "controls", onsubmit: event => { event.preventDefault(); change(act); } }, parts);
  const add = () => el("button", { type: "submit" }, "Add");
  const asked = form(() => { if (!token.value) return; if (other.value) { state.replace[token.value] = other.value; state.remove = state.remove.filter(one => one !== Number(token.value)); } else { delete state.replace[token.value]; state.remove = [...new Set([...state.remove, Number(token.value)])]; } other.value = ""; },
    "If token", token, "were", other, el("small", {}, "or nothing: it is left out"), add());
  const held = form(() => { const one = `${layer.value}${gate.value}:${unit.value}=${value.value}`; if (gate.value && !state.clamp.includes(one)) state.clamp.push(one); }, "If unit", unit, "of", gate, layer, "were held at", value, add());
  const made = form(() => { if (forced.value) state.force[number.value] = forced.value; forced.value = ""; }, "If written token", number, "were", forced, add());
  const beside = el("div", { class: "controls" }, "Beside it", against);
  box.replaceChildren(summary, el("div", { class: "card" }, chips, asked, held, made, beside, el("p", { class: "faint" }, "The original stays beside it. Tokens and units are counted from 1.")));

  function list() {
    const chip = (text, drop) => el("li", {}, el("bdi", {}, text), el("button", { type: "button", "aria-label": `undo: ${text}`, onclick: () => change(drop) }, "✕"));
    const all = [
      ...Object.entries(state.replace).map(([place, word]) => chip(`token ${place} is ${word}`, () => { delete state.replace[place]; })),
      ...state.remove.map(place => chip(`token ${place} is left out`, () => { state.remove = state.remove.filter(one => one !== place); })),
      ...state.clamp.map(one => chip(one.replace(/^(?:(\d+)\.)?(\w+):(\d+)=(.*)$/, (_, where, name, unit, held) => `unit ${unit} of ${name}${where ? ` in layer ${where}` : ""} is held at ${held}`), () => { state.clamp = state.clamp.filter(other => other !== one); })),
      ...Object.entries(state.force).map(([place, word]) => chip(`written token ${place} is ${word}`, () => { delete state.force[place]; })),
    ];
    chips.replaceChildren(...all);
    summary.textContent = all.length ? `What if … (${all.length} ${all.length > 1 ? "changes" : "change"})` : "What if …";
    if (all.length || state.against) box.open = true;
  }
  const options = (select, pairs) => {
    const kept = select.value;
    select.replaceChildren(...pairs.map(([value, text]) => el("option", { value }, text)));
    if (pairs.some(([value]) => String(value) === kept)) select.value = kept;
  };
  return {
    // The state is the page's own; the form changes it in place.
    use(given, model, models) {
      state = given;
      made.hidden = !WRITES.includes(model.task);
      const others = models.filter(one => one.id !== model.id && one.task === model.task);
      beside.hidden = !others.length;
      options(against, [["", "no other model"], ...others.map(one => [one.id, one.id])]);
      against.value = state.against;
      places = []; held.hidden = true;
      list();
    },
    get wantsGates() { return box.open && !places.length; },
    // What of an inspection can be changed.
    offer(one) {
      const steps = one.unrolled?.flatMap(network => network.steps) ?? [];
      words = steps.filter(step => step.origin === "text" || step.origin === "prompt").map(step => step.token);
      options(token, words.map((word, i) => [i + 1, `${i + 1} ${shown(word)}`]));
      asked.hidden = !words.length;
      if (!one.gates) return;
      places = one.gates; held.hidden = !places.length;
      options(gate, [...new Set(places.map(strip => strip.name))].map(name => [name, name]));
      const layers = [...new Set(places.map(strip => strip.layer))];
      options(layer, [["", "all layers"], ...layers.map(number => [`${number}.`, `layer ${number}`])]);
      layer.hidden = layers.length < 2;
      unit.max = Math.max(...places.map(strip => strip.follows.length));
    },
  };
}
