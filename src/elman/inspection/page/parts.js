// The parts of an inspection, each drawn from the JSON of `elman inspect`; null where there is nothing to draw.
import { el, svg, shown, short, largest, number, percent, shade, key, heat, tokens, curve, onResize, fromTheRight, say } from "./drawing.js";
const ORIGINS = { text: "read", start: "start", prompt: "prompt", truth: "truth fed", own: "own output fed" };

// The most probable, each with a bar; what came is marked.
export const bars = (top, came) => el("ol", { class: "best" }, top.map(([token, chance]) =>
  el("li", { class: token === came ? "came" : null }, el("i", { style: `width:${100 * chance}%` }), el("b", { dir: "auto", title: token }, shown(token)), el("span", {}, percent(chance)))));

// Unrolled: a player over all steps of all networks.
function player(one) {
  if (!one.unrolled) return null;
  const steps = one.unrolled.flatMap((network, n) => network.steps.map(step => ({ ...step, network, n })));
  let now = 0, timer = null;
  const scene = el("div", {}), panel = el("div", {}), where = el("b", { class: "where" });
  const slider = el("input", { type: "range", min: 1, max: steps.length, value: 1, "aria-label": "step", oninput: () => go(slider.value - 1) });
  const button = (sign, name, act) => el("button", { "aria-label": name, title: name, onclick: act }, sign);
  const play = button("▶", "play or pause", () => timer ? stop() : start());
  function start() { if (now === steps.length - 1) go(0); play.textContent = "❚❚"; timer = setInterval(() => card.isConnected && now < steps.length - 1 ? go(now + 1) : stop(), 900); }
  function stop() { clearInterval(timer); timer = null; play.textContent = "▶"; }
  const text = tokens(steps.map(step => step.token), {
    colour: i => shade(steps[i].probability ?? 0, 1.6), title: i => describe(steps[i]), chosen: i => go(i) });
  function describe(step) {
    const came = step.output === null ? "" : `, out comes ${shown(step.output)} (${percent(step.probability)})`;
    const own = step.output !== null && step.own !== step.output ? `, the model itself would say ${shown(step.own)}` : "";
    return `${one.unrolled.length > 1 ? step.network.name + " " : ""}t = ${step.t}: ${ORIGINS[step.origin]}: ${shown(step.token)}${came}${own}`;
  }
  function go(to) {
    now = Math.max(0, Math.min(steps.length - 1, to)); slider.value = now + 1;
    const step = steps[now];
    slider.setAttribute("aria-valuetext", describe(step)); where.textContent = describe(step);
    text.spans.forEach((span, i) => span.classList.toggle("now", i === now));
    panel.replaceChildren(el("h3", {}, step.top.length ? "most probable" : ""), bars(step.top, step.output));
    scene.replaceChildren(drawing());
  }
  function drawing() {
    const wide = 104, count = Math.max(3, Math.min(9, Math.floor(((scene.clientWidth || 700) - 20) / wide)));
    const first = Math.max(0, Math.min(steps.length - count, now - (count >> 1))), seen = steps.slice(first, first + count);
    const rows = Math.max(...one.unrolled.map(network => Math.max(1, network.widths.length) * network.directions));
    const box = 34, gap = 14, top = 58, foot = top + rows * (box + gap) + 26, height = foot + 46;
    const art = svg("svg", { width: count * wide + 16, height, role: "img", "aria-label": `the network unrolled, ${seen.length} of ${steps.length} steps` },
      svg("defs", {}, svg("marker", { id: "tipped", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, svg("path", { d: "M0 0L8 4L0 8z", fill: "currentColor" }))));
    const arrow = (d, kind) => art.append(svg("path", { d, class: kind || "wire", "marker-end": "url(#tipped)", style: "color:var(--faint)" }));
    seen.forEach((step, i) => {
      const x = 8 + i * wide, mid = x + wide / 2 - 6, current = first + i === now, kind = current ? "now" : "";
      const { network } = step, own = Math.max(1, network.widths.length) * network.directions;
      for (let row = 0; row < own; row++) {  // from the bottom: layers, and in a layer forward below backward
        const layer = Math.floor(row / network.directions), direction = row % network.directions;
        const y = foot - 26 - (row + 1) * (box + gap) + gap, most = Math.max(1e-9, ...network.steps.map(s => s.sizes[layer]?.[direction] ?? 0));
        const length = step.sizes[layer]?.[direction];
        const share = length === undefined ? 0 : length / most;
        art.append(svg("g", { tabindex: null }, svg("title", {}, `${network.cell || "network"}, layer ${layer + 1} ${"→←"[direction]}: the state has length ${number(length)}`),
          svg("rect", { class: "under", x: mid - 36, y, width: 72, height: box, rx: 7 }),
          svg("rect", { class: `cell ${kind}`, x: mid - 36, y, width: 72, height: box, rx: 7, "fill-opacity": .08 + .5 * share }),
          svg("text", { x: mid, y: y + 21, "text-anchor": "middle" }, `${network.cell || "layer"}`)));
        const before = steps[first + i - 1], after = steps[first + i + 1];
        if (i && network.cell && before.network === network) direction ? arrow(`M${mid - 36} ${y + 17}H${mid - wide + 38}`) : arrow(`M${mid - wide + 36} ${y + 17}H${mid - 38}`);
        if (i && before.network !== network && !direction) arrow(`M${mid - wide + 36} ${y + 17}H${mid - 38}`, "hand");
        if (!direction) arrow(`M${mid} ${y + box + (row ? gap : 22)}V${y + box + 2}`);
        if (direction || row + 1 === own) arrow(`M${mid} ${y}V${row + 1 === own && step.top.length ? 44 : y - gap + 2}`);
      }
      if (step.origin === "own" && i) art.append(svg("path", { class: "back", d: `M${mid - wide} 40C${mid - wide + 50} 48 ${mid - 62} ${foot - 10} ${mid - 30} ${foot}` }));
      const word = (y, string, kind, title) => art.append(svg("text", { x: mid, y, "text-anchor": "middle", class: kind }, svg("title", {}, title || ""), string));
      word(foot + 10, short(step.token, 12), `${kind} ${step.origin === "own" ? "own" : ""}`, step.token);
      word(foot + 26, ORIGINS[step.origin], "small"); word(foot + 41, `t = ${step.t}`, "small");
      const out = step.output ?? step.own;
      if (out !== null) { word(20, short(out, 12), kind, out); word(36, percent(step.probability ?? step.top[0]?.[1]), "small"); }
      const hit = svg("rect", { x, y: 0, width: wide, height, fill: "transparent", style: "cursor:pointer", onclick: () => go(first + i) }, svg("title", {}, describe(step)));
      art.append(hit);
    });
    return el("div", { class: "scroll" }, art);
  }
  const card = el("div", { tabindex: -1, onkeydown: event => {
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: steps.length - 1 }[event.key];
    if (to === undefined || event.target === slider || event.target.tagName === "SELECT") return;
    event.preventDefault(); go(to);
  } },
    el("p", { class: "faint" }, one.unrolled.map(network => `${one.unrolled.length > 1 ? network.name + ": " : ""}${network.cell || "not recurrent"}${network.widths.length ? ` of ${network.widths.join(" and ")} units${network.directions > 1 ? " in each of two directions" : ""}, starting from ${network.start}` : ""}`).join("; ") + "."),
    el("div", { class: "controls" }, button("|◀", "first step", () => go(0)), button("◂", "one step back", () => go(now - 1)), play,
      button("▸", "one step on", () => go(now + 1)), button("▶|", "last step", () => go(steps.length - 1)), slider),
    el("p", { "aria-live": "polite" }, where), el("div", { class: "stage" }, scene, panel),
    el("h3", {}, "all steps"), text.box, key(() => [shade(0, 1), shade(1, 1.6)], "what came out had probability 0", "1"));
  go(0); onResize(scene, () => go(now));
  return card;
}

// Gates and states.
function unpack(strip) {  // of JSON, rows of numbers; in a page of one file, 16-bit numbers
  if (strip.numbers) return strip.numbers;
  if (Array.isArray(strip.values)) {
    Object.assign(strip, { decimals: 0, units: strip.follows.map((_, unit) => unit), all: strip.follows.length });
    return strip.numbers = Float64Array.from(strip.values.flat());
  }
  const bytes = Uint8Array.from(atob(strip.values), c => c.charCodeAt(0));
  return strip.numbers = new Int16Array(bytes.buffer);
}
function rounded(strip) {  // from a number as it is packed to what it says
  const scale = 10 ** Math.abs(strip.decimals);
  return strip.decimals < 0 ? n => n * scale : n => n / scale;
}
function gates(one) {
  if (!one.gates?.length) return null;
  const places = [...new Set(one.gates.map(strip => strip.place))];
  const place = el("select", { "aria-label": "which cell" }, places.map(name => el("option", {}, name)));
  const order = el("select", { "aria-label": "order of the units" }, el("option", { value: "follows" }, "units by what they follow"), el("option", { value: "unit" }, "units by number"));
  const strips = el("div", { class: "strips" }), unit = el("div", {});
  function draw() {
    const own = one.gates.filter(strip => strip.place === place.value);
    strips.replaceChildren(...own.map(strip => {
      const numbers = unpack(strip), U = strip.units.length, value = rounded(strip);
      const rows = order.value === "unit" ? strip.units.map((_, i) => i) : strip.order;
      const at = (r, c) => value(numbers[c * U + rows[r]]);
      const most = strip.signed ? Math.max(1, value(largest(numbers, 0))) : 1;
      const follows = r => { const [name, value] = strip.follows[rows[r]]; return name ? `follows ${name}, r = ${value}` : ""; };
      const left = strip.all > U ? `, ${U} of ${strip.all} units` : "";
      const first = rows.length ? follows(0) : "";
      return el("figure", {}, el("figcaption", {}, el("b", {}, strip.name), ` ${strip.kind}${left} `, key(() => strip.signed ? [shade(-most, most), shade(0, 1), shade(most, most)] : [shade(0, 1), shade(1, 1)], strip.signed ? `−${most}` : "0", strip.signed ? most : "1"),
        first ? el("small", {}, ` first unit: ${strip.units[rows[0]] + 1}, ${first}`) : null),
        heat({ rows: rows.map(i => String(strip.units[i] + 1)), columns: strip.tokens, value: at, colour: v => shade(v, most), tall: 420, least: 4, cell: 26,
          name: `${strip.place}: ${strip.name}, ${U} units by ${strip.tokens.length} tokens`,
          describe: (r, c) => `${strip.name} of unit ${strip.units[rows[r]] + 1} at ${c + 1}, ${shown(strip.tokens[c])}: ${at(r, c)}\n${follows(r)}`,
          chosen: r => show(strip, rows[r]) }));
    }));
    const first = own.find(strip => strip.kind === "state") || own[0];
    show(first, first.order[0]);
  }
  function show(strip, place) {
    const numbers = unpack(strip), U = strip.units.length, value = rounded(strip), at = c => value(numbers[c * U + place]);
    const most = largest(strip.tokens.map((_, c) => at(c)), 1e-9), [name, r] = strip.follows[place];
    const text = tokens(strip.tokens, { colour: c => shade(at(c), most), title: c => String(at(c)), note: strip.tokens.length <= 40 && strip.tokens.some(token => token.length > 1) ? c => String(at(c)) : null });
    unit.replaceChildren(el("h3", {}, `unit ${strip.units[place] + 1} of ${strip.name} over the text`, name ? el("small", {}, ` – follows ${name}, r = ${r}`) : ""), text.box);
  }
  place.addEventListener("change", draw); order.addEventListener("change", draw);
  draw();
  return el("div", {}, el("div", { class: "controls" }, place, order), strips, unit, el("p", { class: "faint" }, "Names are those of the cell's equations. A click on a unit, or the arrow keys, show it over the text below."));
}

// Gradient through time.
function gradients(one) {
  if (!one.gradients?.length) return null;
  const place = el("select", { "aria-label": "which cell" }, one.gradients.map(flow => el("option", {}, flow.place))), body = el("div", {});
  function draw() {
    const flow = one.gradients[place.selectedIndex];
    const known = flow.matrix.flat().filter(v => v > 0), high = Math.log10(largest(known, 0)), low = Math.max(-Math.log10(largest(known.map(v => 1 / v), 0)), high - 6);
    const span = Math.max(.3, high - low);
    body.replaceChildren(el("p", { class: "said" }, flow.sentence),
      el("p", { class: "faint" }, `a factor of ${number(flow.rate)} a step; ${flow.half_life === null ? "no half-life" : `half-life ${number(flow.half_life)} steps`}; ${flow.verdict}`),
      known.length ? el("div", {}, el("h3", {}, "‖∂J", el("sub", {}, "t"), "/∂s", el("sub", {}, "k"), "‖: rows are losses t, columns states k ", key(() => [shade(0, 1), shade(1, 1)], `≤ ${(10 ** low).toPrecision(2)}`, (10 ** high).toPrecision(2))),
        heat({ rows: flow.outputs, columns: flow.tokens, value: (r, c) => flow.matrix[r][c] || null, colour: v => shade(Math.max(0, Math.log10(v) - low + .05 * span), 1.05 * span), name: `gradients through time of ${flow.place}`,
          describe: (r, c) => `loss of ${shown(flow.outputs[r])} (t = ${r + 1}), state after ${shown(flow.tokens[c])} (k = ${c + 1}): ${number(flow.matrix[r][c])}` })) : "",
      el("div", { class: "two" }, curve(flow.curve, "median by steps back", { log: true, label: i => `${i} back` }),
        curve(flow.spectral, "largest singular value of ∂s(k)/∂s(k−1)", { label: i => `k = ${i + 1}` })));
  }
  place.addEventListener("change", draw); draw();
  return el("div", {}, el("div", { class: "controls" }, place), body);
}

// Attention as bands: what each output takes from each source token, as wide as its weight.
const ruler = document.createElement("canvas").getContext("2d");
export function bands(found) {
  const high = 150, gap = 18, edge = 28;
  ruler.font = "16px system-ui, sans-serif";
  const sizes = list => list.map(token => Math.max(26, ruler.measureText(short(token, 16)).width + 10));
  const rows = [found.source, found.outputs].map(sizes), widest = Math.max(40, ...rows.map(row => row.reduce((sum, wide) => sum + wide + gap, 0))), width = widest + 8;
  function placed(list, widths) {  // where words begin, and how wide they are, over the whole width; from the right where they are read so
    const room = (widest - widths.reduce((sum, wide) => sum + wide, 0)) / widths.length;
    let at = 4 + room / 2;
    const places = widths.map(wide => { const x = at; at += wide + room; return [x, wide]; });
    return fromTheRight(list) ? places.map(([x, wide]) => [width - x - wide, wide]) : places;
  }
  const from = placed(found.source, rows[0]), to = placed(found.outputs, rows[1]);
  const art = svg("svg", { width, height: high + 2 * edge, class: "bands", tabindex: 0, role: "img", "aria-label": `attention as bands, from ${found.source.length} source tokens to ${found.outputs.length} outputs; arrow keys go through the outputs` });
  const received = found.source.map((_, s) => Math.max(1, found.weights.reduce((sum, row) => sum + row[s], 0)));
  const used = found.source.map(() => 0), pieces = [];
  const mid = edge + high / 2, end = edge + high;
  found.weights.forEach((row, t) => {
    let at = to[t][0];
    row.forEach((weight, s) => {
      const a = from[s][0] + used[s], above = weight / received[s] * from[s][1], below = weight * to[t][1];
      used[s] += above;
      if (weight >= .01) {
        const band = svg("path", { class: "band", d: `M${a} ${edge}C${a} ${mid} ${at} ${mid} ${at} ${end}H${at + below}C${at + below} ${mid} ${a + above} ${mid} ${a + above} ${edge}Z` }, svg("title", {}, `${shown(found.outputs[t])} looks at ${shown(found.source[s])}: ${weight}`));
        pieces.push([band, s, t]); art.append(band);
      }
      at += below;
    });
  });
  const words = (list, places, y, side) => list.map((token, i) => {
    const word = svg("text", { x: places[i][0] + places[i][1] / 2, y, "text-anchor": "middle", class: "word", onpointerenter: () => light(side, i), onpointerleave: () => light(null) }, svg("title", {}, token), short(token, 16));
    art.append(word);
    return word;
  });
  const above = words(found.source, from, edge - 9, "source"), below = words(found.outputs, to, end + 20, "output");
  function light(side, i) {
    art.classList.toggle("lit", side !== null);
    pieces.forEach(([band, s, t]) => band.classList.toggle("on", (side === "source" ? s : t) === i));
    above.forEach((word, s) => word.classList.toggle("now", side === "source" && s === i || side === "output" && found.weights[i][s] >= .2));
    below.forEach((word, t) => word.classList.toggle("now", side === "output" ? t === i : side === "source" && found.weights[t][i] >= .2));
  }
  let now = -1;
  art.addEventListener("keydown", event => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !found.outputs.length) return;
    event.preventDefault(); event.stopPropagation();
    now = Math.max(0, Math.min(found.outputs.length - 1, now + move)); light("output", now);
    const looks = found.weights[now].map((weight, s) => [weight, found.source[s]]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    say(`${shown(found.outputs[now])} looks at ${looks.map(([weight, token]) => `${shown(token)} ${percent(weight)}`).join(", ")}`);
  });
  art.addEventListener("blur", () => { now = -1; light(null); });
  return el("div", { class: "scroll" }, art);
}
function attention(one) {
  const found = one.attention;
  if (!found) return null;
  const kind = el("select", { "aria-label": "weights or scores" }, el("option", { value: "weights" }, "weights"), el("option", { value: "scores" }, "scores, before the softmax")), body = el("div", {});
  function draw() {
    const values = found[kind.value], most = kind.value === "weights" ? 1 : largest(values.flat(), 1e-9);
    body.replaceChildren(heat({ rows: found.outputs, columns: found.source, value: (r, c) => values[r][c], colour: v => shade(v, most), name: `attention ${kind.value}, outputs by source tokens`,
      describe: (r, c) => `${shown(found.outputs[r])} looks at ${shown(found.source[c])}: weight ${found.weights[r][c]}, score ${found.scores[r][c]}\nentropy ${found.entropy[r]}, context worth ${found.worth[r]}` }));
  }
  kind.addEventListener("change", draw); draw();
  const rows = found.outputs.map((token, t) => el("tr", {}, el("td", { class: "n" }, String(t + 1)), el("th", { scope: "row" }, el("bdi", {}, shown(token))), el("td", {}, el("bdi", {}, shown(found.source[found.weights[t].indexOf(Math.max(...found.weights[t]))])), ` ${Math.max(...found.weights[t])}`), el("td", { class: "n" }, number(found.entropy[t])), el("td", { class: "n" }, number(found.worth[t]))));
  return el("div", {}, found.source.length ? bands(found) : null, el("div", { class: "controls" }, kind), body, el("h3", {}, "step by step"),
    el("div", { class: "scroll" }, el("table", {}, el("tr", {}, ["t", "output", "looks most at", "entropy (nats)", "context worth (nats)"].map(name => el("th", { scope: "col" }, name))), rows)),
    el("p", { class: "faint" }, "Worth: log p of the output, less what it is where this step's context is zeros."));
}

function beam(one) {
  const found = one.beam;
  if (!found) return null;
  const steps = Math.max(0, ...found.nodes.map(node => node.step)), wide = 132, high = 30;
  const by = Array.from({ length: steps + 1 }, () => []);
  found.nodes.forEach(node => by[node.step].push(node));
  const most = Math.max(1, ...by.map(nodes => nodes.length)), height = most * high + 40, places = {};
  const art = svg("svg", { width: (steps + 1) * wide + 40, height, role: "img", "aria-label": `tree of the search, ${found.nodes.length} sequences over ${steps} steps` });
  const spot = (node, i, count) => [24 + node.step * wide, 26 + (i + .5) * (most / count) * high];
  by.forEach(nodes => nodes.forEach((node, i) => { places[node.number] = spot(node, i, nodes.length); }));
  const root = [24, 26 + most * high / 2];
  found.nodes.forEach(node => {
    const [x, y] = places[node.number], [a, b] = node.parent === null ? root : places[node.parent];
    const from = node.parent === null ? a + 34 : a + 92;
    art.append(svg("path", { class: `wire ${node.fate === "chosen" ? "chosen" : node.fate === "pruned" ? "pruned lost" : ""}`, d: `M${from} ${b}C${from + 22} ${b} ${x - 30} ${y} ${x - 6} ${y}` }));
  });
  art.append(svg("text", { x: 0, y: root[1] + 4 }, "start"));
  const marks = { pruned: " ✂", finished: " ■", chosen: "", "went on": "" };
  found.nodes.forEach(node => {
    const [x, y] = places[node.number];
    const kept = node.score === null ? "" : `, score ${node.score}`;
    art.append(svg("text", { x, y: y + 1, class: node.fate }, svg("title", {}, `${shown(node.token)}: step ${node.step}, log p ${node.log_probability}, ${node.fate}${kept}`), short(node.token, 11) + marks[node.fate]),
      svg("text", { x, y: y + 13, class: "small" }, String(node.log_probability)));
  });
  return el("div", {}, el("p", { class: "faint" }, `${found.strategy}. The number is log p so far; ✂ was pruned after that step, ■ ended there; bold is what was found.`), el("div", { class: "scroll" }, art),
    el("ol", {}, found.found.map(text => el("li", { dir: "auto" }, text || "(nothing)"))));
}

function influence(one) {
  const found = one.influence;
  if (!found) return null;
  const most = largest(found.attributions, 1e-9);
  const text = tokens(found.tokens, { colour: i => shade(found.attributions[i], most), title: i => String(found.attributions[i]), note: found.tokens.length <= 40 ? i => String(+found.attributions[i].toPrecision(2)) : null });
  const values = found.occlusion, large = largest(values.flat(), 1e-9);
  return el("div", {}, el("p", {}, found.of), text.box, key(() => [shade(-1, 1), shade(0, 1), shade(1, 1)], `−${most}`, String(most)),
    el("p", { class: "faint" }, `Integrated gradients from vectors of zeros, with ${found.points} points. They should sum to ${found.difference} and miss it by ${found.error}.`),
    el("h3", {}, `what is lost where ${found.together > 1 ? `${found.together} tokens are` : "a token is"} taken away: rows are outputs, in nats `, key(() => [shade(-1, 1), shade(0, 1), shade(1, 1)], `−${large}`, String(large))),
    heat({ rows: found.outputs, columns: found.tokens, value: (r, c) => values[r][c], colour: v => shade(v, large), name: "occlusion, outputs by input tokens",
      describe: (r, c) => `without ${shown(found.tokens[c])} (${c + 1}), log p of ${shown(found.outputs[r])} falls by ${values[r][c]}` }));
}

function map(points, name, shares) {
  if (!points.length) return null;
  const xs = points.map(p => p.x), ys = points.map(p => p.y), box = el("div", {});
  const [a, b, c, d] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  function draw() {
    const width = Math.max(240, Math.min(720, box.clientWidth)), height = .7 * width, taken = [];
    const x = v => 20 + (v - a) / (b - a || 1) * (width - 90), y = v => 20 + (d - v) / (d - c || 1) * (height - 40);
    const art = svg("svg", { width, height, role: "img", "aria-label": `${name}, ${points.length} points` });
    for (const p of [...points].sort((p, q) => q.here - p.here)) {
      const [px, py] = [x(p.x), y(p.y)], label = short(p.label, 10), room = 7 * [...label].length + 6;
      const free = !taken.some(([tx, ty, tw]) => Math.abs(ty - py) < 12 && px < tx + tw && tx < px + room);
      art.append(svg("circle", { class: p.here ? "dot here" : "dot", cx: px, cy: py, r: p.here ? 4 : 2.5 }, svg("title", {}, `${shown(p.label)} ${p.note}`)));
      if (free) { taken.push([px, py, room]); art.append(svg("text", { class: p.here ? "" : "far", x: px + 6, y: py + 4 }, label)); }
    }
    box.replaceChildren(art);
  }
  onResize(box, draw);
  return el("figure", {}, el("figcaption", {}, `${name} – two principal components, ${shares.map(percent).join(" and ")} of the variance`), box);
}
function neighbours(one) {
  const found = one.neighbours, rows = found ? Object.entries(found.nearest) : [];
  if (!found || !(rows.length || found.states.length)) return null;
  return el("div", {}, rows.length ? el("div", { class: "scroll", style: "max-height:300px" }, el("table", {}, el("tr", {}, el("th", { scope: "col" }, "token"), el("th", { scope: "col" }, "nearest, by the cosine of learned vectors")), rows.map(([token, near]) => el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, shown(token))), el("td", {}, near.map(([other, value], i) => [i ? ", " : "", el("bdi", {}, shown(other)), ` ${value}`])))))) : "",
    el("div", { class: "two" }, map(found.words, "words", found.word_shares), map(found.states, "states of the top layer, token by token", found.state_shares)));
}

function example(one) {
  const found = one.example;
  if (!found) return null;
  const row = (name, list) => el("tr", {}, el("th", { scope: "row" }, name), list.map(v => el("td", { class: "n" }, String(v))));
  const gate = [...found.gate], hard = el("table", {}), soft = el("table", {}), last = found.learning.length - 1;
  function write() {
    const buttons = gate.map((g, i) => el("td", {}, el("button", { "aria-label": `gate ${i + 1} is ${g}; switch it`, onclick: () => { gate[i] = 1 - g; write(); } }, String(g))));
    hard.replaceChildren(el("tr", {}, el("th", { scope: "row" }, "g"), buttons), row("x", found.input), row("s", found.memory), row("s' = g ⊙ x + (1 + g) ⊙ s", gate.map((g, i) => g * found.input[i] + (1 + g) % 2 * found.memory[i])));
  }
  const slider = el("input", { type: "range", min: 0, max: last, value: 0, "aria-label": "update of the soft gate", oninput: () => learn() });
  function learn() {
    const [g, s, loss] = found.learning[slider.value];
    soft.replaceChildren(row("g = σ(a)", g), row("x", found.input), row("s", found.memory), row("s' = g ⊙ x + (1 − g) ⊙ s", s), row("wanted", found.written), row("½‖s' − wanted‖²", [loss]));
    slider.setAttribute("aria-valuetext", `update ${slider.value}, loss ${loss}`);
  }
  write(); learn();
  return el("div", { class: "two" }, el("div", {}, el("h3", {}, "a hard gate writes; 1 + g is modulo 2"), hard), el("div", {}, el("h3", {}, "a soft gate learns to write the same"), el("div", { class: "controls" }, "update", slider), soft));
}

export const SECTIONS = [["unrolled", "The network unrolled", player], ["gates", "Gates and states", gates], ["gradients", "The gradient through time", gradients],
  ["attention", "Attention step by step", attention], ["beam", "The search", beam], ["influence", "Influence of the input", influence],
  ["neighbours", "Neighbours and maps", neighbours], ["example", "How a gate writes", example]];
