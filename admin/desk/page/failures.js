import { $, lines, make, name, number, sync, table, tableRow, text } from './dom.js';
import { authorization } from './stream.js';

const groupColumns = ['Code', 'Engine', 'Failed', 'First, last', 'The last error'];
const columns = ['Ended', 'Id', 'Code', 'Engines', 'Model, key', 'Phases, ms'];

// shown is how many failures the page lists one by one.
const shown = 50;

let total = -1; // of the list that is shown

// failures keeps an open list up to date with the count of the last 15 minutes.
export function failures(state) {
  if (!$('failed').hidden && state.window.failed !== total) read(state.window.failed);
}

// openFailures shows the list, or hides it.
export function openFailures() {
  $('failed').hidden = !$('failed').hidden;
  if ($('failed').hidden) return;
  total = -1;
  read(total);
  $('h-failed').focus();
}

async function read(count) {
  total = count;
  const response = await fetch('failures', { headers: authorization(), cache: 'no-store' });
  if (!response.ok) return;
  const all = await response.json();
  text($('failed-about'), all.total ? `${number(all.total)} since the process began, not counting those that are the clients' fault. The log has a line with each id, as request_id.` : 'None since the process began.');
  sync(table($('failed-groups'), groupColumns), all.groups, (g) => `${g.code} ${g.backend}`, () => tableRow(groupColumns), (tr, g) => {
    const cells = [[g.code], [g.backend ? name(g.backend) : 'none was asked'], [number(g.count)], [clock(g.first), clock(g.last)], [g.error]];
    cells.forEach((c, i) => lines(tr.cells[i], c));
  });
  sync(table($('failed-list'), columns), all.failures.slice(0, shown), (f) => f.seq, () => tableRow(columns), (tr, f) => {
    const cells = [
      [clock(f.start + f.total_ms / 1000)], [f.id], [f.code, f.error], [f.prefill, f.decode].map((u) => u && name(u)),
      [f.model, f.key], [f.phases.map((p) => `${p.name} ${number(p.to - p.from)}`).join(' · ')],
    ];
    cells.forEach((c, i) => lines(tr.cells[i], c.filter(Boolean)));
  });
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString();
}

// tileButton makes the tile's figure a button that opens the list.
export function tileButton() {
  const el = make('button', 'tile-button');
  el.type = 'button';
  el.title = 'Which failed, and why';
  el.addEventListener('click', openFailures);
  return el;
}
