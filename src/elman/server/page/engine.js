// The engine: all that the page asks of a model goes through the object `engine`. A page with a model of its own
// (one that needs no server) replaces this file by another with the same four functions and the same kind of error:
//
//   models()                    → [{ id, task, summary, labels, parts, … }], as GET /v1/models lists them
//   predict(model, text, { signal })             → one prediction, as `elman predict --json` writes it
//   write(model, prompt, { temperature, length, seed, signal })  → async iterator over pieces of text
//   inspect(model, text, { parts, changes, against, signal })    → [inspection, …], as `elman inspect --json`:
//       the original, what if, and the same of the model `against`; changes is { replace: { 2: "cat" },
//       remove: [3], force: { 1: "the" }, clamp: ["c:3=0"] }, with tokens counted from 1
//
// `signal` (AbortSignal) ends a request that nobody waits for any more. What fails is an EngineError.

export class EngineError extends Error {
  // kind: "gone" (nobody answers), "busy" (try again after `wait` seconds), "token" (one is needed), "refused" (the
  // question is wrong, and the message says how), "failed" (anything else).
  constructor(kind, message, wait = null) { super(message); Object.assign(this, { kind, wait }); }
}

const KINDS = { 401: "token", 403: "token", 404: "refused", 410: "refused", 413: "refused", 422: "refused", 400: "refused", 429: "busy", 503: "busy" };
const INSPECTED = 400;  // characters of a text that the server looks into
const TOKEN = "elman-token";  // for as long as the tab is open

function remembered() { try { return sessionStorage.getItem(TOKEN) ?? ""; } catch { return ""; } }
let token = remembered();

function said(body, status) {  // the sentence in an answer that is an error
  const found = body?.error?.message ?? body?.error ?? body?.detail ?? body?.message;
  if (Array.isArray(found)) return found.map(one => one.msg ?? String(one)).join("; ");
  return typeof found === "string" ? found : `the server answers ${status}`;
}

async function ask(path, body, signal) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new EngineError("gone", "The server does not answer.");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  throw new EngineError(KINDS[answer.status] ?? "failed", said(told, answer.status), Number(answer.headers.get("Retry-After")) || null);
}

async function* events(answer) {  // the data of server-sent events
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(error => {
      if (error.name === "AbortError") throw error;
      throw new EngineError("gone", "The server stopped in the middle of an answer.");
    });
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

export const engine = {
  useToken(given) {  // of the server alone: what people type when it asks for a token
    token = given;
    try { sessionStorage.setItem(TOKEN, given); } catch { /* it is asked for again after a reload */ }
  },
  async models() {
    return (await (await ask("v1/models")).json()).data;
  },
  async predict(model, text, { signal } = {}) {
    return (await (await ask("v1/predict", { model, inputs: [text] }, signal)).json()).predictions[0];
  },
  async *write(model, prompt, { temperature, length, seed, signal } = {}) {
    const answer = await ask("v1/completions", { model, prompt, temperature, max_tokens: length, seed, stream: true }, signal);
    for await (const data of events(answer)) {
      if (data === "[DONE]") return;
      const piece = JSON.parse(data);
      if (piece.error) throw new EngineError("failed", said(piece, 500));
      if (piece.choices?.[0]?.text) yield piece.choices[0].text;
    }
  },
  async inspect(model, text, { parts, changes = {}, against, signal } = {}) {
    const letters = [...text].length;
    if (letters > INSPECTED) throw new EngineError("refused", `It has ${letters.toLocaleString("en")} characters; a text that is looked into has at most ${INSPECTED}.`);
    const body = { model, text, parts, ...changes, ...(against ? { against: [against] } : {}) };
    const found = await (await ask("v1/inspect", body, signal)).json();
    return Array.isArray(found) ? found : [found];
  },
};
