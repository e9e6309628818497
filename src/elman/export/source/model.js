const bytes = Uint8Array.from(atob(WASM), (c) => c.charCodeAt(0));
const encoder = new TextEncoder(), decoder = new TextDecoder();
const ERRORS = { "-1": "not UTF-8", "-2": "a NUL character", "-3": "longer than this model reads",
  "-4": "no room for the answer", "-5": "a class that training never saw" };

/** The model, ready to answer. */
export async function load() {
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const w = instance.exports;
  return {
    about: ABOUT,
    /** The answer to one line, with log-probabilities, and where attention looked. */
    answer(text) {
      const given = encoder.encode(text.isWellFormed && !text.isWellFormed() ? "" : text);
      if (given.length > ABOUT.bytes) throw new RangeError(ERRORS["-3"]);
      new Uint8Array(w.memory.buffer, w.model_line(), given.length).set(given);
      const size = w.model_respond(given.length);
      if (size < 0) throw new RangeError(ERRORS[size]);
      const said = decoder.decode(new Uint8Array(w.memory.buffer, w.model_answer(), size));
      const numbers = [...new Float64Array(w.memory.buffer.slice(w.model_numbers(), w.model_numbers() + 8 * w.model_number_count()))];
      const found = { text: said, logProbabilities: numbers };
      if (w.model_attention && w.model_number_count()) {
        const count = w.model_tokens(), all = new Float32Array(w.memory.buffer, w.model_attention(), count * w.model_looks());
        found.attention = Array.from({ length: w.model_looks() }, (_, i) => [...all.slice(i * count, (i + 1) * count)]);
      }
      return found;
    },
  };
}
