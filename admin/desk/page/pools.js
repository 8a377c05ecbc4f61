import { actions } from './actions.js';
import { $, lines, make, name, number, percent, sync, table, tableRow, text } from './dom.js';

const columns = ['Engine', 'State', 'In flight', 'On the engine', 'KV cache', 'Prefix hits', 'Ejections', 'Drain, weight'];

const titles = { prefill: 'Prefill', decode: 'Decode', encode: 'Encode' };

// pools fills the tables of the pools. That of encode is shown only if there is one.
export function pools(state) {
  for (const role of Object.keys(titles)) {
    const backends = state.backends.filter((b) => b.role === role);
    const body = table($(`pool-${role}`), columns);
    if (role === 'encode') $('encode-pool').hidden = !backends.length;
    if (!backends.length) text($(`h-${role}`), `${titles[role]} pool: empty`);
    else text($(`h-${role}`), `${titles[role]} pool: ${backends.length}, ${backends[0].policy}`);
    sync(body, backends, (b) => b.url, () => tableRow(columns), row);
  }
}

function row(tr, b) {
  const [engine, state, flight, on, kv, hits, ejections, change] = tr.cells;
  const e = b.engine || {};
  lines(engine, [name(b.url), [(b.models || []).join(', '), b.version && `vLLM ${b.version}`, b.connector, b.both_roles && 'no role of its own', b.weight !== 1 && `weight ${number(b.weight)}`].filter(Boolean).join(' · ')]);
  badge(state, ...stateOf(b));
  lines(flight, [number(b.in_flight), b.tokens_in_flight ? `${number(b.tokens_in_flight)} tokens` : '']);
  lines(on, b.engine ? [`${number(e.running)} run, ${number(e.waiting)} wait`, b.elsewhere >= 0.5 ? `${number(Math.round(b.elsewhere))} from elsewhere` : ''] : ['–', b.engine_unknown || '']);
  meter(kv, e.kv_usage);
  lines(hits, [e.prefix_cache_queries ? percent(e.prefix_cache_hits / e.prefix_cache_queries) : '–']);
  lines(ejections, [b.ejections ? `${b.ejections} in a row` : 'none', b.ejected_for ? `${number(Math.ceil(b.ejected_for))} s left: ${b.eject_reason}` : '']);
  actions(change, b);
}

// stateOf returns the words and the kind of a backend's state.
function stateOf(b) {
  if (b.drained) return [b.admin_state === 'disabled' ? 'disabled' : 'drained', ''];
  if (b.admin_state && b.admin_state !== 'ready') return ['draining', 'warn'];
  if (b.state === 'down') return ['down', 'bad'];
  if (b.ejected_for) return ['ejected', 'warn'];
  if (b.state === 'unknown') return ['not checked', ''];
  return ['up', 'ok'];
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
