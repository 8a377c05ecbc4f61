import { actions } from './actions.js';
import { $, lines, make, name, number, percent, sync, table, tableRow, text } from './dom.js';

const columns = ['Engine', 'State', 'In flight', 'Last 5 minutes', 'On the engine', 'KV cache', 'Prefix hits', 'Drain, weight'];

const titles = { prefill: 'Prefill', decode: 'Decode', encode: 'Encode' };

// many is from how many engines on the pools are folded: those that work stay hidden until somebody asks.
const many = 24;

const unfolded = { prefill: false, decode: false, encode: false };
let state; // the newest

for (const role of Object.keys(unfolded)) {
  $(`fold-${role}`).addEventListener('click', () => {
    unfolded[role] = !unfolded[role];
    pools(state);
  });
}
$('filter').addEventListener('input', () => state && pools(state));

// listed returns the backends of a role that are shown: those with trouble first.
function listed(role, backends, all) {
  const rank = (b) => ['bad', 'warn', '', 'ok'].indexOf(stateOf(b)[1]);
  const words = $('filter').value.trim().toLowerCase();
  const match = (b) => [b.url, stateOf(b)[0], b.reason, ...(b.models || [])].join(' ').toLowerCase().includes(words);
  const sorted = backends.filter(match).map((b, i) => ({ b, i })).sort((x, y) => rank(x.b) - rank(y.b) || x.i - y.i).map((x) => x.b);
  const folds = all > many && !words;
  const trouble = sorted.filter((b) => stateOf(b)[1] !== 'ok');
  const shown = folds && !unfolded[role] ? trouble.slice(0, most / 3) : sorted;
  const button = $(`fold-${role}`);
  button.hidden = !folds || (shown.length === sorted.length && !unfolded[role]);
  button.setAttribute('aria-expanded', String(unfolded[role]));
  text(button, unfolded[role] ? 'Show only those with trouble' : `Show all ${sorted.length}: ${sorted.length - trouble.length} are up`);
  return shown;
}

// pools fills the tables of the pools. That of encode is shown only if there is one.
export function pools(now) {
  state = now;
  $('filter-line').hidden = state.backends.length <= many;
  for (const role of Object.keys(titles)) {
    const backends = state.backends.filter((b) => b.role === role);
    const body = table($(`pool-${role}`), columns);
    if (role === 'encode') $('encode-pool').hidden = !backends.length;
    if (!backends.length) text($(`h-${role}`), `${titles[role]} pool: empty`);
    else text($(`h-${role}`), `${titles[role]} pool: ${backends.length}, ${backends[0].policy}`);
    sync(body, listed(role, backends, state.backends.length), (b) => b.url, () => tableRow(columns), row);
  }
}

function row(tr, b) {
  const [engine, how, flight, recent, on, kv, hits, change] = tr.cells;
  const e = b.engine || {};
  lines(engine, [name(b.url), [(b.models || []).join(', '), b.version && `vLLM ${b.version}`, b.connector, b.both_roles && 'no role of its own', b.weight !== 1 && `weight ${number(b.weight)}`].filter(Boolean).join(' · ')]);
  standing(how, b);
  lines(recent, speeds(b.recent));
  lines(flight, [number(b.in_flight), b.tokens_in_flight ? `${number(b.tokens_in_flight)} tokens` : '']);
  lines(on, b.engine ? [`${number(e.running)} run, ${number(e.waiting)} wait`, b.elsewhere >= 0.5 ? `${number(Math.round(b.elsewhere))} from elsewhere` : ''] : ['–', b.engine_unknown || '']);
  meter(kv, e.kv_usage);
  lines(hits, [e.prefix_cache_queries ? percent(e.prefix_cache_hits / e.prefix_cache_queries) : '–']);
  actions(change, b);
}

// stateOf returns the words and the kind of a backend's state.
function stateOf(b) {
  if (b.drained) return [b.admin_state === 'disabled' ? 'disabled' : 'drained', ''];
  if (b.admin_state && b.admin_state !== 'ready') return ['draining', 'warn'];
  if (b.state === 'down') return ['down', 'bad'];
  if (b.wedged) return ['hangs', 'bad'];
  if (b.ejected_for) return ['ejected', 'warn'];
  if (b.slow) return ['slow', 'warn'];
  if (b.state === 'unknown') return ['not checked', ''];
  return ['up', 'ok'];
}

// standing says how a backend is, since when, and why.
function standing(cell, b) {
  if (!cell.children.length) cell.append(make('span'), make('div'));
  badge(cell.firstElementChild, ...stateOf(b));
  const at = b.since ? new Date(b.since * 1000) : null;
  const since = at && (Date.now() - at < 72e6 ? at.toLocaleTimeString() : at.toLocaleDateString());
  const error = b.last_error && !(b.reason || '').includes(b.last_error) ? `last error at ${new Date(b.last_error_at * 1000).toLocaleTimeString()}: ${b.last_error}` : '';
  lines(cell.lastElementChild, [since ? `since ${since}` : '', b.reason || '', b.by ? `by ${b.by}` : '',
    b.ejected_for ? `${number(Math.ceil(b.ejected_for))} s left, ${b.ejections} in a row` : '', error]);
}

// speeds are the figures of an engine over the last minutes.
function speeds(r) {
  if (!r) return ['–'];
  const ms = (v) => `${number(Math.round(v * 10) / 10)} ms`;
  return [`${number(Math.round(r.rate * 100) / 100)} req/s`, r.ttft === undefined ? '' : `TTFT ${ms(r.ttft)}`, r.tpot === undefined ? '' : `TPOT ${ms(r.tpot)}`,
    r.failed ? `${number(r.failed)} failed` : ''];
}

export function badge(parent, words, kind) {
  let el = parent.firstElementChild;
  if (!el) parent.append(el = make('span'));
  el.className = `badge ${kind}`;
  text(el, words);
}

// meter shows a share as a figure and as a bar.
function meter(cell, share) {
  if (!cell.children.length) {
    cell.append(make('span'), make('span', 'meter'));
    cell.lastElementChild.append(make('span'));
    cell.lastElementChild.setAttribute('aria-hidden', 'true');
  }
  const [figure, bar] = cell.children;
  text(figure, percent(share));
  bar.hidden = share === undefined;
  bar.firstElementChild.style.width = `${100 * (share || 0)}%`;
}

// most is how many engines of a pool the matrix shows. Beyond it, it lists the pairs with trouble.
const most = 24;

// pairs fills the matrix of prefill and decode engines.
export function pairs(state) {
  const p = state.backends.filter((b) => b.role === 'prefill');
  const d = state.backends.filter((b) => b.role === 'decode');
  const of = new Map(state.pairs.map((x) => [`${x.prefill} ${x.decode}`, x]));
  const large = p.length > most || d.length > most;
  const shown = large ? troubled(p, d, of) : d;
  const heads = large ? ['Pair', 'Transfers'] : ['from ↓ to →', ...d.map(() => '')];
  const el = $('pairs');
  const made = large ? 'list' : d.map((b) => b.url).join(' ');
  if (el.dataset.made !== made) { // the pools have changed
    el.replaceChildren();
    el.dataset.made = made;
    table(el, heads);
  }
  if (large) {
    sync(el.tBodies[0], shown, (x) => x.p.url + x.d.url, () => tableRow(heads), (tr, x) => {
      text(tr.cells[0], `${name(x.p.url)} → ${name(x.d.url)}`);
      lines(tr.cells[1], cell(x.p, x.d, of));
    });
    return;
  }
  d.forEach((b, i) => lines(el.tHead.rows[0].cells[i + 1], [name(b.url), speed(b)]));
  sync(el.tBodies[0], p, (b) => b.url, () => tableRow(heads), (tr, b) => {
    text(tr.cells[0], name(b.url));
    d.forEach((x, i) => lines(tr.cells[i + 1], cell(b, x, of)));
  });
}

// cell says what is known of a pair. An engine without a role makes none with itself.
function cell(p, d, of) {
  if (p.url === d.url) return ['–'];
  const x = of.get(`${p.url} ${d.url}`) || { transfers: 0, failures: 0 };
  const ban = (p.banned_with || {})[d.url];
  const cold = (p.cold_with || []).includes(d.url) || (d.cold_with || []).includes(p.url);
  return [number(x.transfers), x.failures ? `${number(x.failures)} failed` : '', ban ? `banned, ${Math.ceil(ban)} s left` : '', cold ? 'no transfer so far' : ''];
}

// speed is what a decode engine says of its pulls.
function speed(b) {
  const e = b.engine || {};
  return e.transfer_seconds && e.transfer_bytes ? `pulls at ${number(e.transfer_bytes / e.transfer_seconds / 1e9)} GB/s` : '';
}

function troubled(p, d, of) {
  const all = p.flatMap((a) => d.filter((b) => b.url !== a.url).map((b) => ({ p: a, d: b })));
  return all.filter((x) => (x.p.banned_with || {})[x.d.url] || (of.get(`${x.p.url} ${x.d.url}`) || {}).failures).slice(0, 100);
}
