// How anything is drawn: elements, tokens, colours, pictures of numbers, curves. Pages have a #tip and a #said.
const tip = document.getElementById("tip"), said = document.getElementById("said");
const SVG = "http://www.w3.org/2000/svg";

function make(space, name, attributes, parts) {
  const made = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") made.style.cssText = value;  // not as an attribute: a server's policy may forbid those
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  made.append(...parts.flat(Infinity).filter(part => part !== null && part !== undefined));
  return made;
}
export const el = (name, attributes, ...parts) => make(null, name, attributes, parts);
export const svg = (name, attributes, ...parts) => make(SVG, name, attributes, parts);
const SIGNS = { " ": "␣", "\n": "↵", "\t": "⇥" };
const SHAPING = /^[\u200c\u200d\ufe00-\ufe0f]$/;  // change how their neighbours look
const code = c => ` U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")} `;
export function shown(token) {  // with signs for what leaves no ink, and a circle under a mark without a letter
  if (token === "") return "∅";
  if (/^[ \n\t]+$/.test(token)) return [...token].map(c => SIGNS[c]).join("");
  if (SHAPING.test(token)) return code(token).trim();
  const seen = token.replace(/[\p{C}\p{Z}]/gu, c => c === " " || SHAPING.test(c) ? c : SIGNS[c] || code(c)).trim();
  return /^\p{M}/u.test(seen) ? `◌${seen}` : seen || token;
}
const letters = label => [...label.replace(/\p{M}/gu, "")].length;  // without the marks on them
export const short = (token, most) => { const all = [...shown(token)]; return all.length > most ? all.slice(0, most - 1).join("") + "…" : all.join(""); };
export const largest = (values, least) => values.reduce((most, value) => Math.max(most, Math.abs(value)), least);  // of any number of them
export const number = value => value === null || value === undefined ? "–" : String(value);
export const percent = value => value === null || value === undefined ? "–" : `${+(100 * value).toPrecision(3)} %`;
function hue(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));
}
const mixed = (a, b, share) => a.map((part, i) => Math.round(part + (b[i] - part) * share));
const rgb = parts => `rgb(${parts.join(",")})`;
export function shade(value, most) {  // signed: minus to plus through the card's own colour
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
const redraws = new WeakMap();  // what is no longer on the page is forgotten
function redrawn(node, draw) { redraws.set(node, draw); node.dataset.drawn = ""; return node; }
export function onResize(box, draw) {  // at first, and where the width changes
  let width = -1;
  new ResizeObserver(() => requestAnimationFrame(() => { if (box.clientWidth !== width) { width = box.clientWidth; draw(); } })).observe(box);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.querySelectorAll("[data-drawn]").forEach(node => redraws.get(node)?.()));

// A picture of numbers: rows and columns with labels, numbers under the pointer and under the keys.
export function heat({ rows, columns, value, colour, name, describe, chosen, cell, least, high, tall }) {
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
    const single = heads.every(label => letters(label) < 2) && wide >= 9, upright = wide >= 7 && !single;
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
      // One character stands: a bracket that lies on its side is another sign.
      if (upright && (letters(heads[c]) > 1 || wide < 9)) { context.rotate(-Math.PI / 2); context.textAlign = "left"; context.fillText(heads[c], 0, 0); }
      else if (single || upright) { context.textAlign = "center"; context.fillText(heads[c], 0, -2); }
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
    draw(); say(describe(...at)); chosen?.(...at);
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
  redrawn(canvas, draw);
  onResize(box, draw);
  return el("div", {}, box, numbers);
}
export function key(colours, low, high) {
  const bar = el("span", { class: "key" });
  const draw = () => { bar.style.background = `linear-gradient(to right, ${colours().map(rgb).join(",")})`; };
  redrawn(bar, draw); draw();
  return el("small", {}, low, bar, high);
}
export function fromTheRight(list) {  // by its first letter
  const letter = list.join("").match(/\p{L}/u);
  return Boolean(letter) && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/.test(letter[0]);
}
export function say(text) { said.textContent = text; }
export function tokens(list, { colour, note, title, chosen }) {
  const tight = list.every(token => letters(token) <= 1), rtl = fromTheRight(list);
  const box = el("div", { class: "tokens", dir: rtl ? "rtl" : "ltr" });
  const spans = list.map((token, i) => {
    const span = el("span", { title: title?.(i), class: tight ? "tight" : null, onclick: () => chosen?.(i) },
      el("bdi", {}, shown(token)), note ? el("small", { dir: "ltr" }, note(i)) : null);
    box.append(span, tight ? "" : " ");
    return span;
  });
  const draw = () => spans.forEach((span, i) => { const parts = colour(i); span.style.background = rgb(parts); span.style.color = inkOn(parts); });
  redrawn(box, draw); draw();
  return { box, spans };
}

// A curve over steps, with its numbers under the pointer.
export function curve(values, name, { log, label }) {
  const height = 190, left = 54, usable = values.map(v => log ? (v > 0 ? Math.log10(v) : null) : v);
  const known = usable.filter(v => v !== null && v !== undefined);
  if (known.length < 2) return el("p", { class: "faint" }, "Too few steps for a curve.");
  let low = Math.min(...known), high = Math.max(...known);
  if (log) { low = Math.floor(low); high = Math.ceil(high); } else { low = Math.min(0, low); }
  if (high === low) high += 1;
  const ticks = [...new Set([low, (low + high) / 2, high].map(v => log ? Math.round(v) : v))], box = el("div", {});
  function draw() {
    const width = Math.max(220, Math.min(560, box.clientWidth));
    const x = i => left + i / Math.max(1, values.length - 1) * (width - left - 12), y = v => 12 + (high - v) / (high - low) * (height - 46);
    const art = svg("svg", { width, height, role: "img", "aria-label": `${name}: ${values.map(number).join(", ")}` });
    for (const tick of ticks) art.append(svg("line", { class: "grid", x1: left, x2: width - 12, y1: y(tick), y2: y(tick) }), svg("text", { class: "small", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, log ? `10${[..."" + tick].map(c => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻").join("")}` : +tick.toPrecision(3)));
    let path = "", up = false;
    usable.forEach((v, i) => { if (v === null || v === undefined) { up = false; return; } path += `${up ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`; up = true; });
    art.append(svg("path", { class: "curve", d: path }));
    usable.forEach((v, i) => { if (v !== null && v !== undefined) art.append(svg("circle", { cx: x(i), cy: y(v), r: 7, fill: "transparent" }, svg("title", {}, `${label(i)}: ${number(values[i])}`))); });
    art.append(svg("text", { class: "small", x: left, y: height - 6 }, label(0)), svg("text", { class: "small", x: width - 12, y: height - 6, "text-anchor": "end" }, label(values.length - 1)));
    box.replaceChildren(art);
  }
  onResize(box, draw);
  return el("figure", {}, el("figcaption", {}, name), box);
}
