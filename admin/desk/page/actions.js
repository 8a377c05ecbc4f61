import { $, make, name, text } from './dom.js';
import { authorization } from './stream.js';

// actions fills a cell with what an operator may do with a backend: drain or enable it, and change its
// weight. Where nothing can be changed, the cell stays empty.
export function actions(cell, b) {
  if (b.admin_state === undefined) return;
  if (!cell.children.length) cell.append(button(), weight());
  const [toggle, share] = cell.children;
  const ready = b.admin_state === 'ready';
  toggle.dataset.url = share.dataset.url = b.url;
  toggle.dataset.state = ready ? 'drain' : 'ready';
  text(toggle, ready ? 'Drain' : 'Enable');
  toggle.setAttribute('aria-label', `${ready ? 'Drain' : 'Enable'} ${name(b.url)}`);
  share.setAttribute('aria-label', `Weight of ${name(b.url)}`);
  if (document.activeElement !== share) share.value = b.weight;
}

function button() {
  const el = make('button');
  el.type = 'button';
  el.addEventListener('click', async () => {
    const { url, state } = el.dataset;
    if (state !== 'drain' || await sure(url)) change(el, { state });
  });
  return el;
}

// sure asks once before an engine is drained.
function sure(url) {
  text($('sure-what'), `${name(url)} gets no new requests, and ends those that it has.`);
  $('sure').returnValue = 'no';
  $('sure').showModal();
  return new Promise((resolve) => {
    $('sure').addEventListener('close', () => resolve($('sure').returnValue === 'yes'), { once: true });
  });
}

function weight() {
  const el = make('input', 'weight');
  Object.assign(el, { type: 'number', min: '0', step: 'any' });
  el.addEventListener('change', () => change(el, { weight: Number(el.value) }));
  return el;
}

// change sends a change of the backend that el is for, and says what has come of it.
async function change(el, body) {
  const url = el.dataset.url;
  try {
    const response = await fetch(`backends/${encodeURIComponent(url)}`, {
      method: 'PATCH', headers: { ...authorization(), 'Content-Type': 'application/json', 'X-Xpyd-Client': 'page' }, body: JSON.stringify(body),
    });
    const answer = await response.json().catch(() => ({ error: `not changed, status ${response.status}` }));
    const done = body.state ? `${name(url)}: ${body.state}` : `${name(url)}: weight ${body.weight}`;
    say(response.ok ? [done, answer.warning, answer.note].filter(Boolean).join('. ') : `${name(url)}: ${answer.error}`, response.ok);
  } catch (e) {
    say(`${name(url)}: not changed, ${e.message}`, false);
  }
}

function say(words, ok) {
  text($('done'), words);
  $('done').className = ok ? 'quiet' : 'bad-text';
}
