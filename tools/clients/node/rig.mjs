// What the checks know about the rest: the fleet that the runner has started (its addresses come
// from the environment), and how to report.
//
// Each check prints one line of JSON to standard output: {"check": name, "failure": text or null}.
import { setTimeout as sleep } from "node:timers/promises";

const env = process.env;
export const URL = env.CLIENTS_URL; // of xpyd, without /v1
export const KEY = env.CLIENTS_KEY;
export const ADMIN = env.CLIENTS_ADMIN;
export const VICTIM = env.CLIENTS_VICTIM; // a second xpyd in front of the same engines, which a check kills
export const VICTIM_PID = Number(env.CLIENTS_VICTIM_PID);
export const PREFILL = env.CLIENTS_PREFILL.split(",");
export const DECODE = env.CLIENTS_DECODE.split(",");

export async function runAll(checks) {
  for (const [check, run] of Object.entries(checks)) {
    let failure = null;
    try {
      await run();
    } catch (err) { // anything that the SDK throws is a finding
      const line = /(?:check|apis|before_vllm)\.mjs:(\d+)/.exec(err.stack ?? "")?.[1];
      failure = `line ${line}: ${err.constructor?.name}: ${err.message}`;
    }
    console.log(JSON.stringify({ check, failure }));
  }
}

export function expect(ok, said) {
  if (!ok) throw new Error(said);
}

export function same(got, want, what) {
  const [g, w] = [JSON.stringify(got), JSON.stringify(want)];
  expect(g === w, `${what}: ${g}, want ${w}`);
}

/** The error of that class, itself and not a subclass, that call throws. */
export async function raises(kind, call) {
  const err = await raised(kind, call);
  expect(err, `no ${kind.name}`);
  return err;
}

/** The error of that class, or undefined if call returns. Any other error is a failure. */
async function raised(kind, call) {
  try {
    await call();
  } catch (err) {
    expect(err.constructor === kind, `${err.constructor.name}, want ${kind.name}: ${err.message}`);
    return err;
  }
}

export async function call(url, body, method = "POST") {
  const options = { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answer = await fetch(url, body === undefined ? {} : options);
  expect(answer.ok, `${url}: ${answer.status}`);
  return answer.text();
}

const all = async (engines, path) => Promise.all(engines.map(async (e) => JSON.parse(await call(e + path))));

/** Makes every decode engine misbehave, as text says; "" ends that. */
export const fault = (text) => Promise.all(DECODE.map((e) => call(e + "/sim/fault", text || {})));

/** What the engines got for a request: how many prefill legs, how many decode legs. Those that
 * only give a handle back have an id that says so. */
export async function legs(requestID) {
  const records = (await all([...PREFILL, ...DECODE], "/sim/requests")).flat();
  const mine = records.filter((r) => new RegExp(`^${requestID}-[0-9a-f]{8}$`).test(r.request_id));
  return [mine.filter((r) => r.leg === "prefill").length, mine.filter((r) => r.leg !== "prefill").length];
}

/** How many completions xpyd has answered with an error so far. These it counts before the client has the answer, all
 * others after it. */
export async function refusals() {
  const text = await call(ADMIN + "/metrics");
  return [...text.matchAll(/^xpyd_requests_total\{.*outcome="(?:client_)?error".*\} (\S+)$/gm)].reduce((sum, m) => sum + Number(m[1]), 0);
}

/** The error at the bottom of an error's causes. */
export const cause = (err) => err.cause ? cause(err.cause) : err;

export async function collect(stream) {
  const events = [];
  for await (const e of stream) events.push(e);
  return events;
}

export async function wait(what, condition, seconds = 10) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    expect(Date.now() < end, `not within ${seconds} s: ${what}`);
    await sleep(20);
  }
}

/** The engines are busy until xpyd has said so. ask(id) succeeds at the SDK's second attempt, or at its
 * third if this machine stalls. */
export async function retried(status, id, ask) {
  const before = await refusals();
  await fault(`status=${status}`);
  const mended = wait("a first attempt", async () => (await refusals()) > before).finally(() => fault(""));
  const begun = Date.now();
  await ask(id);
  const took = Date.now() - begun;
  await mended;
  const n = await refusals() - before + 1;
  expect(n >= 2 && n <= 3 && took >= 1000 * (n - 1), `${n} attempts in ${took} ms, want two, and each the second later that Retry-After asks for`);
  const [prefill, decode] = await legs(id);
  expect(prefill === decode && [2 * n - 1, 2 * n].includes(prefill), `${prefill} prefill, ${decode} decode legs in ${n} attempts, want two rounds that fail, then one`);
}

/** ask(id, n) gives up while the prompt is computed, after which no leg is left. If this machine stalls, the engine may
 * not have the request by then, or the client may find its answer. Then ask has another try, with a prompt of which
 * nothing is cached. */
export async function timesOut(kind, id, ask) {
  for (let n = 0; n < 3; n++) {
    const last = n === 2;
    if (!await raised(kind, () => ask(`${id}-${n}`, n))) {
      expect(!last, `no ${kind.name}`);
      continue;
    }
    await nothingHeld();
    const got = await legs(`${id}-${n}`);
    if (last || got.some((count) => count > 0)) return same(got, [1, 0], "prefill and decode legs");
  }
}

/** No engine has a block pinned or a request running. Well before a lease of 30 s ends. */
export async function nothingHeld() {
  const engines = [...PREFILL, ...DECODE];
  await wait("every block free and every engine idle", async () => {
    const pinned = (await all(engines, "/sim/ledger")).map((l) => l.pinned);
    const running = (await all(engines, "/load")).map((l) => l.server_load);
    return [...pinned, ...running].every((n) => n === 0);
  });
}
