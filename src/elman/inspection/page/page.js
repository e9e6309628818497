"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip"), said = document.getElementById("said");
const SVG = "http://www.w3.org/2000/svg", BESIDE = DATA.length > 1;
const ORIGINS = { text: "read", start: "start", prompt: "prompt", truth: "truth fed", own: "own output fed" };

function make(space, name, attributes, parts) {
  const made = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  made.append(...parts.flat(Infinity).filter(part => part !== null && part !== undefined));
  return made;
}
const el = (name, attributes, ...parts) => make(null, name, attributes, parts);
const svg = (name, attributes, ...parts) => make(SVG, name, attributes, parts);
const SIGNS = { " ": "␣", "\n": "↵", "\t": "⇥" };
const shown = token => token === "" ? "∅" : token.replace(/^[ \n\t]+$/, all => [...all].map(c => SIGNS[c]).join("")).replace(/\n/g, "↵");
const short = (token, most) => { const all = [...shown(token)]; return all.length > most ? all.slice(0, most - 1).join("") + "…" : all.join(""); };
const number = value => value === null || value === undefined ? "–" : String(value);
const percent = value => value === null || value === undefined ? "–" : `${+(100 * value).toPrecision(3)} %`;
function hue(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));
}
const mixed = (a, b, share) => a.map((part, i) => Math.round(part + (b[i] - part) * share));
const rgb = parts => `rgb(${parts.join(",")})`;
function shade(value, most) {  // signed: minus to plus through the card's own colour
  const card = hue("--card"), share = most ? Math.min(1, Math.abs(value) / most) : 0;
  return mixed(card, hue(value < 0 ? "--minus" : "--plus"), share);
}
const inkOn = parts => parts[0] * .3 + parts[1] * .59 + parts[2] * .11 > 140 ? "#111" : "#fff";
function point(event, text) {
  tip.hidden = !text; tip.textContent = text || "";
  if (!text) return;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 22 + box.height > innerHeight ? event.clientY - box.height - 8 : event.clientY + 18}px`;
}
const redraws = [];
function onResize(box, draw) {  // at first, and where the width changes
  let width = -1;
  new ResizeObserver(() => requestAnimationFrame(() => { if (box.clientWidth !== width) { width = box.clientWidth; draw(); } })).observe(box);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach(draw => draw()));

// A picture of numbers: rows and columns with labels, numbers under the pointer and under the keys.
function heat({ rows, columns, value, colour, name, describe, chosen, cell, least, high, tall }) {
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": name });
  const box = el("div", { class: "scroll" }, canvas);
  const R = rows.length, C = columns.length;
  let at = null, size = {};
  function measure() {
    const room = Math.max(220, (box.clientWidth || 600) - 2);
    const context = canvas.getContext("2d");
    context.font = "12px system-ui, sans-serif";
    const labels = rows.map(label => short(label, 14));
    const left = tall ? 34 : Math.min(110, 8 + Math.max(0, ...labels.map(label => context.measureText(label).width)));
    const wide = Math.max(least || 5, Math.min(cell || 30, (room - left) / Math.max(1, C)));
    const high_ = high || Math.max(tall ? 2 : 5, Math.min(tall ? 14 : cell || 30, (tall || 560) / Math.max(1, R)));
    const heads = columns.map(label => short(label, 12));
    const single = heads.every(label => [...label].length < 2) && wide >= 9, upright = wide >= 7 && !single;
    const top = single ? 18 : upright ? 10 + Math.min(90, Math.max(0, ...heads.map(label => context.measureText(label).width))) : 16;
    size = { left, top, wide, high: high_, labels, heads, upright, single };
  }
  function draw() {
    measure();
    const { left, top, wide, high, labels, heads, upright, single } = size, ratio = devicePixelRatio || 1;
    const width = left + wide * C + 2, height = top + high * R + 2;
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    for (let r = 0; r < R; r++) for (let c = 0; c < C; c++) {
      const found = value(r, c);
      if (found === null || found === undefined) continue;
      context.fillStyle = rgb(colour(found));
      context.fillRect(left + c * wide, top + r * high, Math.ceil(wide), Math.ceil(high));
    }
    context.strokeStyle = rgb(hue("--line"));
    context.strokeRect(left - .5, top - .5, wide * C + 1, high * R + 1);
    context.font = "12px system-ui, sans-serif"; context.fillStyle = rgb(hue("--ink")); context.textBaseline = "middle";
    const step = Math.max(1, Math.ceil(12 / high));
    context.textAlign = "right";
    for (let r = 0; r < R; r += step) context.fillText(labels[r], left - 5, top + (r + .5) * high);
    const every = Math.max(1, Math.ceil((upright || single ? 12 : 60) / wide));
    for (let c = 0; c < C; c += every) {
      context.save(); context.translate(left + (c + .5) * wide, top - 6);
      if (upright) { context.rotate(-Math.PI / 2); context.textAlign = "left"; context.fillText(heads[c], 0, 0); }
      else if (single) { context.textAlign = "center"; context.fillText(heads[c], 0, -2); }
      else { context.textAlign = "left"; context.fillText(String(c + 1), 0, -2); }
      context.restore();
    }
    if (at) {
      context.strokeStyle = rgb(hue("--mark")); context.lineWidth = 2;
      context.strokeRect(left + at[1] * wide, top + at[0] * high, wide, high);
    }
  }
  function place(event) {
    const box = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - box.left - size.left) / size.wide);
    const r = Math.floor((event.clientY - box.top - size.top) / size.high);
    return r >= 0 && r < R && c >= 0 && c < C ? [r, c] : null;
  }
  canvas.addEventListener("pointermove", event => { const under = place(event); point(event, under && describe(...under)); });
  canvas.addEventListener("pointerleave", () => point(null, ""));
  canvas.addEventListener("click", event => { const under = place(event); if (under) { at = under; draw(); chosen?.(...under); } });
  canvas.addEventListener("keydown", event => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move || !R || !C) return;
    event.preventDefault(); event.stopPropagation();
    at = at ? [Math.max(0, Math.min(R - 1, at[0] + move[0])), Math.max(0, Math.min(C - 1, at[1] + move[1]))] : [0, 0];
    draw(); said.textContent = describe(...at); chosen?.(...at);
    const frame = canvas.getBoundingClientRect();
    point({ clientX: frame.left + size.left + at[1] * size.wide, clientY: frame.top + size.top + at[0] * size.high }, describe(...at));
  });
  canvas.addEventListener("blur", () => point(null, ""));
  const numbers = el("details", { ontoggle: event => {
    if (!event.target.open || event.target.querySelector("table")) return;
    const head = el("tr", {}, el("th", {}), columns.map(label => el("th", { scope: "col", dir: "auto" }, shown(label))));
    const body = rows.map((label, r) => el("tr", {}, el("th", { scope: "row", dir: "auto" }, shown(label)), columns.map((_, c) => el("td", { class: "n" }, number(value(r, c))))));
    event.target.append(el("div", { class: "scroll" }, el("table", {}, head, body)));
  } }, el("summary", {}, "as a table of numbers"));
  redraws.push(draw);
  onResize(box, draw);
  return el("div", {}, box, numbers);
}
function key(colours, low, high) {
  const bar = el("span", { class: "key" });
  const draw = () => { bar.style.background = `linear-gradient(to right, ${colours().map(rgb).join(",")})`; };
  redraws.push(draw); draw();
  return el("small", {}, low, bar, high);
}
function tokens(list, { colour, note, title, chosen }) {
  const tight = list.every(token => [...token].length <= 1);
  const letter = list.join("").match(/\p{L}/u), rtl = letter && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/.test(letter[0]);
  const box = el("div", { class: "tokens", dir: rtl ? "rtl" : "ltr" });
  const spans = list.map((token, i) => {
    const span = el("span", { title: title?.(i), class: tight ? "tight" : null, onclick: () => chosen?.(i) },
      el("bdi", {}, shown(token)), note ? el("small", {}, note(i)) : null);
    box.append(span, tight ? "" : " ");
    return span;
  });
  const draw = () => spans.forEach((span, i) => { const parts = colour(i); span.style.background = rgb(parts); span.style.color = inkOn(parts); });
  redraws.push(draw); draw();
  return { box, spans };
}

// Unrolled: a player over all steps of all networks.
function player(one) {
  if (!one.unrolled) return null;
  const steps = one.unrolled.flatMap((network, n) => network.steps.map(step => ({ ...step, network, n })));
  let now = 0, timer = null;
  const scene = el("div", {}), panel = el("div", {}), where = el("b", { class: "where" });
  const slider = el("input", { type: "range", min: 1, max: steps.length, value: 1, "aria-label": "step", oninput: () => go(slider.value - 1) });
  const button = (sign, name, act) => el("button", { "aria-label": name, title: name, onclick: act }, sign);
  const play = button("▶", "play or pause", () => timer ? stop() : start());
  function start() { if (now === steps.length - 1) go(0); play.textContent = "❚❚"; timer = setInterval(() => now < steps.length - 1 ? go(now + 1) : stop(), 900); }
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
    panel.replaceChildren(el("h3", {}, step.top.length ? "most probable" : ""), el("ol", { class: "best" }, step.top.map(([token, chance]) =>
      el("li", { class: token === step.output ? "came" : null }, el("i", { style: `width:${100 * chance}%` }), el("b", { dir: "auto", title: token }, shown(token)), el("span", {}, percent(chance))))));
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
        if (i && before.network === network) direction ? arrow(`M${mid - 36} ${y + 17}H${mid - wide + 38}`) : arrow(`M${mid - wide + 36} ${y + 17}H${mid - 38}`);
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
    el("div", { class: "controls" }, button("|◀", "first step", () => go(0)), button("◀", "one step back", () => go(now - 1)), play,
      button("▸", "one step on", () => go(now + 1)), button("▶|", "last step", () => go(steps.length - 1)), slider),
    el("p", { "aria-live": "polite" }, where), el("div", { class: "stage" }, scene, panel),
    el("h3", {}, "all steps"), text.box, key(() => [shade(0, 1), shade(1, 1.6)], "what came out had probability 0", "1"));
  go(0); onResize(scene, () => go(now));
  return card;
}

// Gates and states.
function unpack(strip) {
  if (strip.numbers) return strip.numbers;
  const bytes = Uint8Array.from(atob(strip.values), c => c.charCodeAt(0));
  return strip.numbers = new Int16Array(bytes.buffer);
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
      const numbers = unpack(strip), U = strip.units.length, scale = 10 ** strip.decimals;
      const rows = order.value === "unit" ? strip.units.map((_, i) => i) : strip.order;
      const at = (r, c) => numbers[c * U + rows[r]] / scale;
      const most = strip.signed ? Math.max(1, ...Array.from({ length: Math.min(numbers.length, 20000) }, (_, i) => Math.abs(numbers[i]) / scale)) : 1;
      const follows = r => { const [name, value] = strip.follows[rows[r]]; return name ? `follows ${name}, r = ${value}` : ""; };
      const left = strip.all > U ? `, ${U} of ${strip.all} units` : "";
      const first = rows.length ? follows(0) : "";
      return el("figure", {}, el("figcaption", {}, el("b", {}, strip.name), ` ${strip.kind}${left} `, key(() => strip.signed ? [shade(-most, most), shade(0, 1), shade(most, most)] : [shade(0, 1), shade(1, 1)], strip.signed ? `−${most}` : "0", strip.signed ? most : "1"),
        first ? el("small", {}, ` first unit: ${strip.units[rows[0]] + 1}, ${first}`) : null),
        heat({ rows: rows.map(i => String(strip.units[i] + 1)), columns: strip.tokens, value: at, colour: v => shade(v, most), tall: 420, least: 4, cell: 26,
          name: `${strip.place}: ${strip.name}, ${U} units by ${strip.tokens.length} tokens`,
          describe: (r, c) => `${strip.name} of unit ${strip.units[rows[r]] + 1} at ${c + 1}, ${shown(strip.tokens[c])}: ${at(r, c)}\n${follows(r)}`,
          chosen: r => show(strip, rows[r], most) }));
    }));
    const first = own.find(strip => strip.kind === "state") || own[0];
    show(first, first.order[0], 1);
  }
  function show(strip, place, most) {
    const numbers = unpack(strip), U = strip.units.length, scale = 10 ** strip.decimals, at = c => numbers[c * U + place] / scale;
    const largest = Math.max(1e-9, ...strip.tokens.map((_, c) => Math.abs(at(c)))), [name, r] = strip.follows[place];
    const text = tokens(strip.tokens, { colour: c => shade(at(c), largest), title: c => String(at(c)), note: strip.tokens.length <= 40 && strip.tokens.some(token => token.length > 1) ? c => String(at(c)) : null });
    unit.replaceChildren(el("h3", {}, `unit ${strip.units[place] + 1} of ${strip.name} over the text`, name ? el("small", {}, ` – follows ${name}, r = ${r}`) : ""), text.box);
  }
  place.addEventListener("change", draw); order.addEventListener("change", draw);
  draw();
  return el("div", {}, el("div", { class: "controls" }, place, order), strips, unit, el("p", { class: "faint" }, "Names are those of the cell's equations. A click on a unit, or the arrow keys, show it over the text below."));
}

// Gradient through time.
function curve(values, name, { log, label }) {
  const width = 420, height = 190, left = 54, usable = values.map(v => log ? (v > 0 ? Math.log10(v) : null) : v);
  const known = usable.filter(v => v !== null && v !== undefined);
  if (known.length < 2) return el("p", { class: "faint" }, "Too few steps for a curve.");
  let low = Math.min(...known), high = Math.max(...known);
  if (log) { low = Math.floor(low); high = Math.ceil(high); } else { low = Math.min(0, low); }
  if (high === low) high += 1;
  const x = i => left + i / Math.max(1, values.length - 1) * (width - left - 12), y = v => 12 + (high - v) / (high - low) * (height - 46);
  const art = svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", style: "max-width:560px", role: "img", "aria-label": `${name}: ${values.map(number).join(", ")}` });
  const ticks = [...new Set([low, (low + high) / 2, high].map(v => log ? Math.round(v) : v))];
  for (const tick of ticks) art.append(svg("line", { class: "grid", x1: left, x2: width - 12, y1: y(tick), y2: y(tick) }), svg("text", { class: "small", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, log ? `10${[..."" + tick].map(c => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻").join("")}` : +tick.toPrecision(3)));
  let path = "", up = false;
  usable.forEach((v, i) => { if (v === null || v === undefined) { up = false; return; } path += `${up ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`; up = true; });
  art.append(svg("path", { class: "curve", d: path }));
  usable.forEach((v, i) => { if (v !== null && v !== undefined) art.append(svg("circle", { cx: x(i), cy: y(v), r: 7, fill: "transparent" }, svg("title", {}, `${label(i)}: ${number(values[i])}`))); });
  art.append(svg("text", { class: "small", x: left, y: height - 6 }, label(0)), svg("text", { class: "small", x: width - 12, y: height - 6, "text-anchor": "end" }, label(values.length - 1)));
  return el("figure", {}, el("figcaption", {}, name), art);
}
function gradients(one) {
  if (!one.gradients?.length) return null;
  const place = el("select", { "aria-label": "which cell" }, one.gradients.map(flow => el("option", {}, flow.place))), body = el("div", {});
  function draw() {
    const flow = one.gradients[place.selectedIndex];
    const known = flow.matrix.flat().filter(v => v > 0), high = Math.log10(Math.max(...known)), low = Math.max(Math.log10(Math.min(...known)), high - 6);
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

function attention(one) {
  const found = one.attention;
  if (!found) return null;
  const kind = el("select", { "aria-label": "weights or scores" }, el("option", { value: "weights" }, "weights"), el("option", { value: "scores" }, "scores, before the softmax")), body = el("div", {});
  function draw() {
    const values = found[kind.value], most = kind.value === "weights" ? 1 : Math.max(1e-9, ...values.flat().map(Math.abs));
    body.replaceChildren(heat({ rows: found.outputs, columns: found.source, value: (r, c) => values[r][c], colour: v => shade(v, most), name: `attention ${kind.value}, outputs by source tokens`,
      describe: (r, c) => `${shown(found.outputs[r])} looks at ${shown(found.source[c])}: weight ${found.weights[r][c]}, score ${found.scores[r][c]}\nentropy ${found.entropy[r]}, context worth ${found.worth[r]}` }));
  }
  kind.addEventListener("change", draw); draw();
  const rows = found.outputs.map((token, t) => el("tr", {}, el("td", { class: "n" }, String(t + 1)), el("th", { scope: "row" }, el("bdi", {}, shown(token))), el("td", {}, el("bdi", {}, shown(found.source[found.weights[t].indexOf(Math.max(...found.weights[t]))])), ` ${Math.max(...found.weights[t])}`), el("td", { class: "n" }, number(found.entropy[t])), el("td", { class: "n" }, number(found.worth[t]))));
  return el("div", {}, el("div", { class: "controls" }, kind), body, el("h3", {}, "step by step"),
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
  const most = Math.max(1e-9, ...found.attributions.map(Math.abs));
  const text = tokens(found.tokens, { colour: i => shade(found.attributions[i], most), title: i => String(found.attributions[i]), note: found.tokens.length <= 40 ? i => String(+found.attributions[i].toPrecision(2)) : null });
  const values = found.occlusion, large = Math.max(1e-9, ...values.flat().map(Math.abs));
  return el("div", {}, el("p", {}, found.of), text.box, key(() => [shade(-1, 1), shade(0, 1), shade(1, 1)], `−${most}`, String(most)),
    el("p", { class: "faint" }, `Integrated gradients from vectors of zeros, with ${found.points} points. They should sum to ${found.difference} and miss it by ${found.error}.`),
    el("h3", {}, `what is lost where ${found.together > 1 ? `${found.together} tokens are` : "a token is"} taken away: rows are outputs, in nats`),
    heat({ rows: found.outputs, columns: found.tokens, value: (r, c) => values[r][c], colour: v => shade(v, large), name: "occlusion, outputs by input tokens",
      describe: (r, c) => `without ${shown(found.tokens[c])} (${c + 1}), log p of ${shown(found.outputs[r])} falls by ${values[r][c]}` }));
}

function map(points, name, shares) {
  if (!points.length) return null;
  const width = 560, height = 400, xs = points.map(p => p.x), ys = points.map(p => p.y);
  const [a, b, c, d] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const x = v => 50 + (v - a) / (b - a || 1) * (width - 120), y = v => 20 + (d - v) / (d - c || 1) * (height - 40);
  const art = svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", style: "max-width:720px", role: "img", "aria-label": `${name}, ${points.length} points` });
  const taken = [];
  for (const p of [...points].sort((p, q) => q.here - p.here)) {
    const [px, py] = [x(p.x), y(p.y)], label = short(p.label, 10), room = 7 * [...label].length + 6;
    const free = !taken.some(([tx, ty, tw]) => Math.abs(ty - py) < 12 && px < tx + tw && tx < px + room);
    art.append(svg("circle", { class: p.here ? "dot here" : "dot", cx: px, cy: py, r: p.here ? 4 : 2.5 }, svg("title", {}, `${shown(p.label)} ${p.note}`)));
    if (free) { taken.push([px, py, room]); art.append(svg("text", { class: p.here ? "" : "far", x: px + 6, y: py + 4 }, label)); }
  }
  return el("figure", {}, el("figcaption", {}, `${name} – two principal components, ${shares.map(percent).join(" and ")} of the variance`), art);
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

const SECTIONS = [["unrolled", "The network unrolled", player], ["gates", "Gates and states", gates], ["gradients", "The gradient through time", gradients],
  ["attention", "Attention step by step", attention], ["beam", "The search", beam], ["influence", "Influence of the input", influence],
  ["neighbours", "Neighbours and maps", neighbours], ["example", "How a gate writes", example]];
const main = document.getElementById("main");
main.classList.toggle("beside", BESIDE);
const header = el("header", {}, el("div", { class: "over" }, "Elman inspection"), el("h1", { dir: "auto" }, DATA[0].text ? short(DATA[0].text, 120) : "from the beginning"));
main.replaceChildren(header);
const facts = one => el("div", { class: "card" }, BESIDE ? el("div", { class: "whose" }, whose(one)) : null,
  el("p", { class: "faint" }, [one.run, one.task, one.network].filter(Boolean).join(" · ")),
  el("p", {}, "text: ", el("bdi", {}, one.text || "∅")), one.target === null ? null : el("p", {}, "given: ", el("bdi", {}, one.target)),
  el("p", {}, "answer: ", el("b", { class: "answer" }, el("bdi", {}, one.answer || "∅"))),
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
