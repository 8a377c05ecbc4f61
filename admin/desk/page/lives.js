import { $, make, name, number, sync, text } from './dom.js';
import { badge } from './pools.js';

const kinds = { ok: 'ok', client_gone: '', client_error: 'warn' };

// lives shows the completions that ended last, each as two lanes: the prefill leg above, the decode leg
// below. Each has a scale of its own.
export function lives(list) {
  const none = { seq: 'none' };
  sync($('lives'), list.length ? list : [none], (l) => l.seq, (l) => (l === none ? make('li', 'quiet', 'None so far.') : create(l)), () => {});
}

function create(l) {
  const li = make('li');
  const head = make('div', 'life-head');
  const when = make('time', '', new Date(l.start * 1000).toLocaleTimeString());
  when.dateTime = new Date(l.start * 1000).toISOString();
  const outcome = make('span');
  badge(outcome, l.code || l.outcome, kinds[l.outcome] ?? 'bad');
  head.append(when, outcome, make('strong', '', `${number(l.total_ms)} ms`), make('span', '', way(l)), make('span', 'id', l.id));
  const lanes = make('div', 'lanes');
  lanes.setAttribute('aria-hidden', 'true'); // the line below says the same
  for (const p of l.phases) {
    const bar = make('span', p.name);
    bar.style.left = `${100 * p.from / l.total_ms}%`;
    bar.style.width = `${100 * (p.to - p.from) / l.total_ms}%`;
    lanes.append(bar);
  }
  const words = l.phases.map((p) => `${p.name} ${number(p.to - p.from)}`).join(' · ');
  li.append(head, lanes, make('div', 'quiet', `${words} ms${l.events ? ` · ${number(l.events)} events` : ''}`));
  return li;
}

// way says which engines had the completion, and why it went that way.
function way(l) {
  const to = [l.prefill, l.decode].filter(Boolean).map(name).join(' → ');
  const alone = l.path === 'decode_only' ? `decode alone: ${l.reason}` : '';
  return [l.api, to, alone, l.rounds > 1 ? `${l.rounds} rounds` : ''].filter(Boolean).join(' · ');
}

// paths lists which way the completions of the last 15 minutes went, and why.
export function paths(ways) {
  const list = Object.entries(ways).flatMap(([path, reasons]) => Object.entries(reasons).map(([reason, n]) => ({ path, reason, n })));
  list.sort((a, b) => b.n - a.n || a.reason.localeCompare(b.reason));
  if (!list.length) list.push({ path: '', reason: '', n: 0 });
  sync($('paths'), list, (x) => `${x.path} ${x.reason}`, () => make('li'),
    (li, x) => text(li, x.path ? `${number(x.n)} ${x.path === 'decode_only' ? 'by decode alone' : 'by both legs'}${x.reason === 'none' ? '' : `: ${x.reason}`}` : 'No completion reached an engine.'));
}
