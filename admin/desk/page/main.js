import { $, make, number, sync, text } from './dom.js';
import { events } from './events.js';
import { failures, tileButton } from './failures.js';
import { lives, paths } from './lives.js';
import { plots } from './plots.js';
import { pairs, pools } from './pools.js';
import { follow, setToken, token, Unauthorized } from './stream.js';

let paused = false;
let held = {}; // the newest event of each name while the page is paused

const show = { state, plots };

function deliver(name, data) {
  if (paused) held[name] = data;
  else show[name]?.(data);
}

let version = '';
let host = '';

// state shows the figures of this moment.
function state(s) {
  version ||= s.version;
  if (version !== s.version) location.reload(); // another version has taken over, with files of its own
  host = s.host;
  text($('who'), host ? `xpyd on ${host}` : 'xpyd');
  if (!s.ready) connection('not ready', 'bad');
  else if (s.line !== 'ok' || s.notices.some((n) => n.kind === 'bad')) connection('degraded', 'warn');
  else connection('ready', 'ok');
  text($('build'), `${s.version}, up ${duration(s.time - s.started)}`);
  siblings(s.siblings || []);
  const list = s.notices.length ? s.notices : [{ kind: 'ok', text: 'Nothing.' }];
  sync($('notices'), list, (n) => n.text, (n) => make('li', n.kind, n.text), () => {});
  tiles(s);
  failures(s);
  events(s).catch(() => {}); // the next state asks again
  pools(s);
  pairs(s);
  paths(s.window.ways);
  lives(s.lives);
  advice(s.advice);
  const warnings = s.warnings.length ? s.warnings : ['Nothing questionable.'];
  sync($('warnings'), warnings, (w) => w, (w) => make('li', '', w), () => {});
}

// siblings links to the pages of the other processes.
function siblings(urls) {
  $('siblings').hidden = !urls.length;
  sync($('siblings'), urls, (u) => u, (u) => {
    const a = make('a', '', u.replace(/^https?:\/\//, ''));
    a.href = u;
    return a;
  }, () => {});
}

const failedTile = 'Failed, 15 min';

// sum adds up a figure of the last minutes over the engines of a role.
function sum(s, role, figure) {
  return s.backends.filter((b) => b.role === role && b.recent).reduce((n, b) => n + b.recent[figure], 0);
}

function tiles(s) {
  const w = s.window;
  const ms = (v) => (v === null ? '–' : `${number(Math.round(v * 10) / 10)} ms`);
  const list = [
    ['In flight', number(s.running)],
    ['Waiting for prefill', number(s.queued.prefill)],
    ['Waiting for decode', number(s.queued.decode)],
    ['KV blocks pinned', number(s.kv.pinned)],
    ['KV blocks stranded', number(s.kv.stranded)],
    ['Ended, 15 min', number(w.ok + w.failed + w.refused + w.gone)],
    [failedTile, number(w.failed)],
    ['Completions a second', number(sum(s, 'decode', 'rate'))],
    ['TTFT p50', ms(w.ttft.p50)], ['TTFT p90', ms(w.ttft.p90)], ['TTFT p99', ms(w.ttft.p99)],
    ['TPOT p50', ms(w.tpot.p50)], ['TPOT p99', ms(w.tpot.p99)],
  ];
  sync($('tiles'), list, (t) => t[0], (t) => {
    const div = make('div');
    div.append(make('dt', '', t[0]), make('dd'));
    if (t[0] === failedTile) div.lastElementChild.append(tileButton());
    return div;
  }, (div, t) => text(div.querySelector('button') || div.lastElementChild, t[1]));
}

function advice(a) {
  const say = {
    none: 'No pool is short of engines.',
    unknown: 'Not known so far.',
    prefill: `Prefill is short: ${a.balanced_prefill} prefill to ${a.balanced_decode} decode engines would share the work better.`,
    decode: `Decode is short: ${a.balanced_prefill} prefill to ${a.balanced_decode} decode engines would share the work better.`,
  };
  const load = (l) => (l < 0 ? 'not known' : `${number(Math.round(l * 100))} %`);
  text($('advice'), `${say[a.short]} Load of prefill: ${load(a.prefill.load)}, of decode: ${load(a.decode.load)}.`);
  text($('arithmetic'), a.arithmetic);
  text($('plans'), (a.plans || []).map((p) => `${p.model ? `${p.model}: ` : ''}${p.why}.`).join(' '));
}

function duration(seconds) {
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const [size, unit] = units.find(([size]) => seconds >= size) || units.at(-1);
  return `${Math.floor(seconds / size)} ${unit}`;
}

function connection(words, kind) {
  text($('ready'), words);
  $('ready').className = `badge ${kind}`;
  const title = `${kind === 'ok' ? '' : `${words}: `}xpyd${host ? ` on ${host}` : ''}`;
  if (document.title !== title) document.title = title;
  const icon = kind ? `assets/icon-${kind}.svg` : 'assets/icon.svg';
  if ($('icon').getAttribute('href') !== icon) $('icon').setAttribute('href', icon);
}

$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').setAttribute('aria-pressed', String(paused));
  if (paused) return;
  for (const [name, data] of Object.entries(held)) show[name]?.(data);
  held = {};
});

$('ask').addEventListener('cancel', (e) => e.preventDefault()); // there is nothing to see without a token

// askToken shows the dialog until it has a token.
function askToken(why) {
  text($('ask-why'), why);
  $('ask').showModal();
  return new Promise((resolve) => {
    $('ask-form').addEventListener('submit', (e) => {
      e.preventDefault();
      setToken($('token').value);
      $('token').value = '';
      $('ask').close();
      resolve();
    }, { once: true });
  });
}

// live follows the events for as long as the page is open.
async function live() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 10_000)) {
    try {
      await follow('status/events', (name, data) => {
        wait = 500;
        deliver(name, data);
      });
    } catch (e) {
      if (e instanceof Unauthorized) {
        connection('locked', '');
        await askToken(token() ? 'That token is not the right one.' : '');
        wait = 250;
        continue;
      }
    }
    connection('no connection', 'bad');
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

live();
