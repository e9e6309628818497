const bytes = Uint8Array.from(atob(WASM), (c) => c.charCodeAt(0));
const encoder = new TextEncoder(), decoder = new TextDecoder();
const ERRORS = { "-1": "not UTF-8", "-2": "a NUL character", "-3": "longer than this model reads",
  "-4": "no room for the answer", "-5": "a class that training never saw" };
const SPACES = /[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u; // as Python's split has them
const CUTS = { character: (text) => [...text], word: (text) => text.split(SPACES).filter(Boolean),
  listed: (text) => text.split(/[ \t]+/).filter(Boolean) };

/** The model, ready to answer. */
export async function load() {
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const w = instance.exports;
  const floats = (at, count) => new Float32Array(w.memory.buffer.slice(at, at + 4 * count));
  const whole = (at, count) => [...new Int32Array(w.memory.buffer.slice(at, at + 4 * count))];
  const rows = (all, wide) => Array.from({ length: all.length / wide }, (_, i) => [...all.slice(i * wide, (i + 1) * wide)]);

  function asked(text, respond) {
    if (/\p{Surrogate}/u.test(text)) throw new RangeError(ERRORS["-1"]); // half a character
    const given = encoder.encode(text);
    if (given.length > ABOUT.bytes) throw new RangeError(ERRORS["-3"]);
    new Uint8Array(w.memory.buffer, w.model_line(), given.length).set(given);
    const size = respond(given.length);
    if (size < 0) throw new RangeError(ERRORS[size]);
    const said = decoder.decode(new Uint8Array(w.memory.buffer, w.model_answer(), size));
    const at = w.model_numbers(), numbers = new Float64Array(w.memory.buffer.slice(at, at + 8 * w.model_number_count()));
    return { text: said, logProbabilities: [...numbers] };
  }

  function written(read) {
    const names = ABOUT.written || ABOUT.tokens, steps = w.model_steps(), all = steps * ABOUT.shownTop;
    const chances = floats(w.model_chances(), steps), best = rows(whole(w.model_top(), all), ABOUT.shownTop);
    const values = rows(floats(w.model_top_chances(), all), ABOUT.shownTop);
    return whole(w.model_came(), steps).map((token, t) => ({
      token: token < 0 ? read[-1 - token] : names[token], prompted: t < w.model_prompted(), probability: chances[t],
      top: best[t].map((one, i) => [names[one], values[t][i]]) }));
  }

  return {
    about: ABOUT,
    /** The answer to one line, with log-probabilities. */
    answer(text) { return asked(text, w.model_respond); },
    /** The answer with what happened on the way to it. */
    explain(text) {
      const found = asked(text, w.model_explain), count = w.model_tokens();
      const cut = CUTS[ABOUT.cut]?.(text), ids = whole(w.model_ids(), count);
      const read = found.read = cut?.length === count ? cut : ids.map((id) => ABOUT.tokens[id]);
      found.written = w.model_steps && found.logProbabilities.length ? written(read) : [];
      if (w.model_attention) found.attention = rows(floats(w.model_attention(), found.written.length * count), count);
      if (w.model_attended) found.pooled = [...floats(w.model_attended(), count)];
      found.cells = ABOUT.cells.map((cell, i) => {
        const steps = Math.min(ABOUT.traced, cell.reads ? count : found.written.length);
        return { ...cell, values: floats(w.model_trace(i), steps * cell.names.length * cell.units) };
      });
      return found;
    },
  };
}
