import { $, make, name, sync } from './dom.js';
import { authorization } from './stream.js';

// shown is how many events the page lists.
const shown = 50;

let list = []; // the newest first
let last = 0; // the number of the newest event that was read
let process; // when the process began whose events these are
let reading = false;

// events reads what has changed since the last time, if the state says that there is more.
export async function events(state) {
  if (state.started !== process) [list, last, process] = [[], 0, state.started]; // another one numbers its events anew
  if (state.last_event === last || reading) return;
  reading = true;
  try {
    const response = await fetch(`events?since=${last}`, { headers: authorization(), cache: 'no-store' });
    if (!response.ok) return;
    const page = await response.json();
    if (page.started !== process) return; // the next state is of that one
    last = page.last;
    list = [...page.events.reverse(), ...list].slice(0, shown);
    sync($('events'), list, (e) => `${page.started} ${e.seq}`, create, () => {});
  } finally {
    reading = false;
  }
}

function create(e) {
  const li = make('li');
  const when = make('time', 'quiet', `${new Date(e.time * 1000).toLocaleTimeString()} `);
  when.dateTime = new Date(e.time * 1000).toISOString();
  const engine = [e.role, e.backend && name(e.backend), e.partner && `with ${name(e.partner)}`].filter(Boolean).join(' ');
  const why = e.backend ? [e.reason || e.change] : [e.text, e.reason || e.change];
  li.append(when, make('strong', '', e.kind), ` ${[engine, ...why].filter(Boolean).join(': ')}${e.by ? ` (${e.by})` : ''}`);
  return li;
}
