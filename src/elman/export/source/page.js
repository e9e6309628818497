// The page of one model: the answer as somebody types, and what happened on the way to it.
const model = await window.loading, about = model.about, $ = (id) => document.getElementById(id);
const SETTLED = 150; // milliseconds without a key, after which the pictures are drawn
let waiting = null;

function answer() {
  const text = $("text").value.replace(/\r?\n/g, " "), start = performance.now();
  $("best").replaceChildren();
  clearTimeout(waiting);
  let found;
  try { found = model.answer(text); } catch (error) {
    $("answer").textContent = ""; $("note").textContent = error.message; $("inside").replaceChildren();
    return;
  }
  const took = performance.now() - start, chances = found.logProbabilities.map(Math.exp);
  $("answer").textContent = found.text;
  $("note").textContent = text ? `${found.text ? "" : "The answer is empty. "}${took.toFixed(1)} ms` : "Type something above.";
  if (about.labels && chances.length) $("best").append(...bars(labels(chances).slice(0, 8), found.text).children);
  else if (about.task !== "tag" && chances.length) $("best").append(...bars([["probability of the whole", chances[0]]]).children);
  waiting = setTimeout(() => inside(text), SETTLED);
}
const labels = (chances) => chances.map((p, i) => [about.labels[i], p]).sort((a, b) => b[1] - a[1]);

// What `elman inspect` knows, as far as it is known here.
function inspected(found) {
  const networks = [...new Set(found.cells.map((cell) => cell.network))].map((name) => {
    const cells = found.cells.filter((cell) => cell.network === name), reads = cells[0].reads;
    const before = [[about.start, "start"], ...found.written.map((step) => [step.token, step.prompted ? "prompt" : "own"])];
    const tokens = reads ? found.read.slice(0, about.traced).map((token) => [token, "text"]) : before.slice(0, found.written.length);
    const lengths = cells.map(lengthsOf), directions = 1 + Math.max(...cells.map((cell) => cell.direction));
    const steps = tokens.map(([token, origin], t) => {
      const sizes = [...new Set(cells.map((cell) => cell.layer))].map((layer) => cells.flatMap((cell, i) => cell.layer === layer ? [lengths[i][t]] : []));
      return { t: t + 1, token, origin, sizes, ...(reads ? concluded(found, t) : came(found.written[t])) };
    });
    return { name, cell: cells[0].cell, widths: cells.filter((cell) => !cell.direction).map((cell) => cell.units), directions, start: STARTS[about.task === "seq2seq" ? name : about.task] || "zeros", steps };
  });
  const gates = found.cells.flatMap((cell) => cell.names.map((name, k) => strip(cell, name, k, networks.find((one) => one.name === cell.network))));
  return { unrolled: networks, gates };
}
const STARTS = { decoder: "what was read", class2seq: "its class" };
const came = (step) => ({ output: step.token, probability: step.probability, own: step.top[0][0], top: step.top });
function concluded(found, t) {
  const chances = found.logProbabilities.map(Math.exp), nothing = { output: null, probability: null, own: null, top: [] };
  if (about.task === "tag") { const tag = found.text.split(" ")[t]; return { output: tag, probability: chances[t], own: tag, top: [[tag, chances[t]]] }; }
  if (!about.labels || t + 1 < found.read.length) return nothing;
  const top = labels(chances).slice(0, 5), one = top.find(([name]) => name === found.text) || top[0];
  return { output: found.text, probability: one[1], own: top[0][0], top };
}
function lengthsOf({ values, names, states, units }) {
  const size = names.length * units, first = (names.length - states) * units;
  return Array.from({ length: values.length / size }, (_, t) => Math.hypot(...values.slice(t * size + first, t * size + first + units)));
}
function strip(cell, name, k, network) {
  const { values, names, states, units, layer, direction } = cell, size = names.length * units, tokens = network.steps.map((step) => step.token);
  const numbers = Float64Array.from({ length: tokens.length * units }, (_, i) => Math.round(1000 * values[Math.floor(i / units) * size + k * units + i % units]));
  const place = `${cell.network}${network.widths.length > 1 ? ` layer ${layer + 1}` : ""}${network.directions > 1 ? ["forward", "backward"].map((one) => ` ${one}`)[direction] : ""}`;
  const all = Array.from({ length: units }, (_, unit) => unit);
  return { name, kind: k < names.length - states ? "gate" : "state", place, tokens, numbers, decimals: 3, units: all, all: units,
    order: all, follows: all.map(() => ["", 0]), signed: numbers.some((v) => v < 0 || v > 1000) };
}

function section(id, title, ...parts) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), el("div", { class: "card" }, parts));
}
function looks(found) {
  const seen = { source: found.read, outputs: found.written.map((step) => step.token), weights: found.attention };
  const small = (value) => Math.round(1000 * value) / 1000;
  return section("attention", "Where attention looked", seen.source.length * seen.outputs.length > 4000 ? null : bands({ ...seen, weights: seen.weights.map((row) => row.map(small)) }),
    heat({ rows: seen.outputs, columns: seen.source, value: (r, c) => small(seen.weights[r][c]), colour: (v) => shade(v, 1), name: "attention, outputs by source tokens",
      describe: (r, c) => `${shown(seen.outputs[r])} looks at ${shown(seen.source[c])}: ${small(seen.weights[r][c])}` }));
}
function inside(text) {
  const found = model.explain(text), place = $("inside").querySelector("[aria-label='which cell']")?.value;
  const one = inspected(found), drawn = [];
  if (found.logProbabilities.length && one.unrolled.some((network) => network.steps.length)) {
    if (found.attention) drawn.push(looks(found));
    if (found.pooled) drawn.push(section("pooled", "What counted", tokens(found.read, { colour: (i) => shade(found.pooled[i], Math.max(...found.pooled)), title: (i) => percent(found.pooled[i]) }).box));
    drawn.push(section("unrolled", "The network unrolled", player(one)), section("gates", "Gates and states", gates(one)));
  }
  $("inside").replaceChildren(...drawn);
  $("inside").querySelector("[aria-label='order of the units']")?.remove();
  const choice = $("inside").querySelector("[aria-label='which cell']");
  if (choice && place && place !== choice.value) { choice.value = place; choice.dispatchEvent(new Event("change")); }
}

$("text").addEventListener("input", answer);
try { if (location.hash.length > 1) $("text").value = decodeURIComponent(location.hash.slice(1)); } catch { /* no text */ }
answer();
window.elman = model;
