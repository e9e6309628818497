// What the page shows, as the fragment of its address, so that a link shows the same to others.
export const DEFAULTS = { model: "", text: "", view: "unrolled", temperature: 0.8, length: 40, seed: 1, against: "", replace: {}, remove: [], force: {}, clamp: [] };
const NUMBERS = { temperature: [0, 2], length: [1, 500], seed: [0, 2 ** 31 - 1] };

export const fresh = () => structuredClone(DEFAULTS);

export function read(fragment) {  // whatever somebody wrote there, something sensible comes out
  const found = fresh(), given = new URLSearchParams(fragment.replace(/^#/, ""));
  for (const [name, value] of given) {
    if (name === "replace" || name === "force") {
      const pair = value.match(/^(\d+)=(.*)$/s);
      if (pair) found[name][pair[1]] = pair[2];
    } else if (name === "remove") { if (/^\d+$/.test(value)) found.remove.push(Number(value)); }
    else if (name === "clamp") found.clamp.push(value);
    else if (name in NUMBERS) {
      const [low, high] = NUMBERS[name], number = Number(value);
      if (Number.isFinite(number)) found[name] = Math.min(high, Math.max(low, name === "temperature" ? number : Math.round(number)));
    } else if (name in found) found[name] = value;
  }
  return found;
}

export function write(state) {
  const out = new URLSearchParams();
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const value = state[name];
    if (Array.isArray(value)) value.forEach(one => out.append(name, one));
    else if (typeof value === "object") Object.entries(value).forEach(([place, token]) => out.append(name, `${place}=${token}`));
    else if (value !== usual) out.set(name, value);
  }
  return out.toString();
}

export function changesOf({ replace, remove, force, clamp }) {  // those that are there
  const all = { replace, remove, force, clamp };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => Object.keys(value).length));
}
