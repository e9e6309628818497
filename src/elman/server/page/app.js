// The page: it asks the engine while somebody types, and shows what it says.
import { el, shown, say } from "./drawing.js";
import { engine, EngineError } from "./engine.js";
import * as address from "./address.js";
import { answer, line } from "./answers.js";
import { makeChanges } from "./changes.js";
import { makeTabs, showPart, whose } from "./views.js";

const at = Object.fromEntries([...document.querySelectorAll("[id]")].map(one => [one.id, one]));
const ASKS = { classify: "A text to classify", tag: "A text to tag", lm: "The beginning of a text", class2seq: "A class", seq2seq: "A text to translate or rewrite" };
const HINTS = { classify: "Type a text; its class follows as you type.", tag: "Type a text; every word gets its tag as you type.", lm: "", class2seq: "Choose a class, or type one.", seq2seq: "Type a text; it is rewritten as you type." };
const PAUSE = 150;  // milliseconds without a key, after which the engine is asked
let state = address.read(location.hash), models = [], model = null, tabs = null, timer = null, retry = null, going = new AbortController();
let now = {};  // what is known about the text: prediction, found (inspections), written

const changes = makeChanges(at.changes, () => { remember(); ask(0); });
at.changes.addEventListener("toggle", () => { if (changes.wantsGates && model) ask(0); });

function remember(step = false) {  // a step is one that the browser goes back by
  const fragment = address.write(state);
  if (fragment !== location.hash.slice(1)) history[step ? "pushState" : "replaceState"](null, "", fragment ? `#${fragment}` : location.pathname + location.search);
}
function grow() {
  at.text.style.height = "auto";
  at.text.style.height = `${at.text.scrollHeight}px`;
}

// Trouble: a sentence, and what can be done.
function trouble(error) {
  clearInterval(retry);
  if (!error) { at.trouble.replaceChildren(); return; }
  if (error.kind === "token" && engine.useToken) return askForToken(error);
  const again = () => { trouble(null); model ? ask(0) : start(); };
  const left = el("span", {}), button = el("button", { type: "button", onclick: again }, "Try now");
  const TITLES = { gone: "The server does not answer.", busy: "The server is busy.", refused: error.inside ? "The model cannot be looked into here." : "The model cannot read this.", failed: "Something went wrong." };
  const told = error instanceof EngineError ? error.message : `${error.name}: ${error.message}`;
  at.trouble.replaceChildren(el("div", { class: `card trouble ${error.kind ?? "failed"}` }, el("b", {}, TITLES[error.kind] ?? TITLES.failed), told && told !== TITLES[error.kind] ? el("p", {}, told) : null,
    error.kind === "refused" ? null : el("div", { class: "controls" }, button, left)));
  if (error.kind === "gone" || error.kind === "busy") {
    let wait = Math.ceil(error.wait ?? 5);
    const count = () => { if (wait <= 0) return again(); left.textContent = `trying again in ${wait} s`; wait--; };
    left.setAttribute("aria-hidden", "true");  // a number that changes every second is not read aloud
    count(); retry = setInterval(count, 1000);
  }
}
function askForToken(error) {
  const field = el("input", { type: "password", id: "token", autocomplete: "off", required: "" });
  at.trouble.replaceChildren(el("form", { class: "card trouble", onsubmit: event => { event.preventDefault(); engine.useToken(field.value.trim()); trouble(null); model ? ask(0) : start(); } },
    el("b", {}, "This server asks for a token."), el("p", {}, error.message), el("div", { class: "controls" }, el("label", { for: "token" }, "Token"), field, el("button", { type: "submit" }, "Go on"))));
  field.focus();
}

// Asking: what is no longer wanted is given up.
function ask(pause = PAUSE) {
  clearTimeout(timer);
  at.main.setAttribute("aria-busy", "true");
  timer = setTimeout(run, pause);
}
async function run() {
  timer = null;
  going.abort();
  going = new AbortController();
  const { signal } = going, text = state.text, mine = () => !signal.aborted;
  const nothing = !text.trim() && model.task !== "lm";
  if (nothing) { now = {}; at.main.removeAttribute("aria-busy"); trouble(null); return show(); }
  const fresh = now.text !== text || now.model !== model.id;
  now = fresh ? { text, model: model.id, prediction: null, found: now.found, stale: true } : { ...now, stale: true };
  at.main.setAttribute("aria-busy", "true");
  const view = tabs.names.includes(state.view) ? state.view : tabs.names[0];
  const parts = [...new Set(["unrolled", view, model.task === "seq2seq" ? "attention" : view, changes.wantsGates ? "gates" : view])].filter(part => tabs.names.includes(part));
  const jobs = [
    model.task === "lm" ? write(signal, mine) : engine.predict(model.id, text, { signal }).then(prediction => { if (mine()) { now.prediction = prediction; show(); } }),
    engine.inspect(model.id, text, { parts, changes: address.changesOf(state), against: state.against || undefined, signal }).then(found => {
      if (!mine()) return;
      now.found = found; now.stale = false;
      changes.offer(found[0]); show(); showPanel(view);
    }).catch(error => { if (mine()) now.found = null; throw Object.assign(error, { inside: true }); }),
  ];
  const ends = await Promise.allSettled(jobs);
  if (!mine()) return;
  if (timer === null) at.main.removeAttribute("aria-busy");  // else somebody typed on
  at.panel.hidden = !now.found;
  const wrong = ends.find(end => end.status === "rejected")?.reason;
  trouble(wrong && wrong.name !== "AbortError" ? wrong : null);
  if (!wrong) say(said());
}
async function write(signal, mine) {
  const asked = [state.text, state.temperature, state.length, state.seed, model.id].join("\n");
  if (now.asked === asked && now.whole) return;  // it is there
  let written = "";
  for await (const piece of engine.write(model.id, state.text, { temperature: state.temperature, length: state.length, seed: state.seed, signal })) {
    if (!mine()) return;
    written += piece; now.written = written;
    show();
  }
  if (mine()) Object.assign(now, { asked, whole: true, written }), show();
}

// Showing.
const said = () => model.task === "lm" ? `${now.written ?? ""}` : line(now.prediction, now.found?.[0]);
function show() {
  const fit = now.found && !now.stale ? now.found : [], several = fit.length > 1;
  at.main.classList.toggle("beside", several);
  const columns = several ? fit : [fit[0] ?? null];
  const first = now.prediction || now.written !== undefined || fit[0];
  if (!first) {
    if (!now.text) at.answer.replaceChildren(...hint());  // else what was said before stays until the next answer
    at.panel.hidden = !now.found;
  } else
    at.answer.replaceChildren(el("div", { class: "columns" }, columns.map((one, i) => el("div", { class: "card says" },
      several ? el("div", { class: "whose" }, whose(one, fit), one.changes.map(change => el("div", { class: "change" }, change))) : null,
      answer(model.task, i ? null : now.prediction, one, { written: i ? undefined : now.written, text: one?.changes.length ? one.text : now.text })))));
  const { read, unknown } = now.prediction ?? {};
  at.status.textContent = read ? `${read} ${read > 1 ? "tokens" : "token"}${unknown ? `, ${unknown} of them unknown to the model` : ""}` : "";
}
function hint() {
  const labels = model.labels ?? [];
  at.panel.hidden = true; delete at.panel.dataset.part;
  return [el("div", { class: "empty" }, el("p", {}, HINTS[model.task] ?? "Type a text."),
    labels.length && model.task !== "class2seq" ? el("p", { class: "faint" }, `It knows ${labels.length} ${labels.length > 1 ? "labels" : "label"}: `, labels.slice(0, 12).map((label, i) => [i ? ", " : "", el("bdi", {}, label)]), labels.length > 12 ? ", …" : ".") : null)];
}
function showPanel(view) {
  at.panel.hidden = false;
  at.panel.setAttribute("aria-labelledby", `tab-${view}`);
  showPart(at.panel, view, now.found);
}

// Choosing a model, and everything that follows from it.
const chosen = () => models.find(one => one.id === state.model) ?? models[0];
function use() {
  model = chosen();
  state.model = models.length > 1 ? model.id : "";
  at.model.value = model.id;
  at.title.textContent = model.id;
  at.about.textContent = [model.task, model.summary].filter(Boolean).join(" · ");
  document.title = `${model.id} – Elman`;
  at.asks.textContent = ASKS[model.task] ?? "A text";
  at.drawing.hidden = model.task !== "lm";
  const classes = model.task === "class2seq" ? model.labels ?? [] : [];
  at.classes.hidden = !classes.length;
  at.classes.replaceChildren(...classes.slice(0, 60).map(name => el("button", { type: "button", onclick: () => { at.text.value = state.text = name; grow(); remember(); ask(0); } }, el("bdi", {}, shown(name)))));
  tabs = makeTabs(at.views, model.parts, (name, step) => { state.view = name; remember(step); ask(0); });
  at.views.hidden = !tabs.names.length;
  now = {};
  at.answer.replaceChildren(); at.panel.replaceChildren(); at.panel.hidden = true;
}
function settle() {  // the page as the state has it
  at.text.value = state.text; grow();
  tabs.show(tabs.names.includes(state.view) ? state.view : tabs.names[0]);
  changes.use(state, model, models);
  Object.assign(at.temperature, { value: state.temperature }); at.length.value = state.length;
  warm();
}
function warm() {
  at.warmth.textContent = state.temperature ? state.temperature.toFixed(2) : "0: the most probable";
}

at.text.addEventListener("input", () => { state.text = at.text.value; grow(); remember(); ask(); });
at.model.addEventListener("change", () => { Object.assign(state, { model: at.model.value, against: "", replace: {}, remove: [], force: {}, clamp: [] }); use(); settle(); remember(true); ask(0); });
at.temperature.addEventListener("input", () => { state.temperature = Number(at.temperature.value); warm(); remember(); ask(); });
at.length.addEventListener("change", () => { state.length = Math.max(1, Math.min(500, Math.round(Number(at.length.value)) || 40)); at.length.value = state.length; remember(); ask(0); });
at.again.addEventListener("click", () => { state.seed += 1; remember(); ask(0); });
at.share.addEventListener("click", async () => {
  const told = await navigator.clipboard?.writeText(location.href).then(() => "Link copied", () => null) ?? "The address of this page is the link";
  at.share.textContent = told; say(told);
  setTimeout(() => { at.share.textContent = "Copy link"; }, 2500);
});
addEventListener("hashchange", () => {
  state = address.read(location.hash);
  if (!models.length) return;
  if (model !== chosen()) use();
  settle(); ask(0);
});
addEventListener("resize", grow);

async function start() {
  try { models = await engine.models(); } catch (error) { at.title.textContent = "Elman"; return trouble(error); }
  if (!models.length) { at.title.textContent = "No model"; at.about.textContent = "The server was started without a run."; return; }
  at.choice.hidden = models.length < 2;
  at.model.replaceChildren(...models.map(one => el("option", { value: one.id }, one.id)));
  at.text.disabled = false;
  use(); settle();
  if (!matchMedia("(pointer: coarse)").matches) at.text.focus();  // on a telephone it would open the keyboard
  document.documentElement.dataset.ready = "yes";
  state.text.trim() || model.task === "lm" ? run() : show();
}
start();
