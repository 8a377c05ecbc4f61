// The page changes only what is different from a second ago. So the focus, a selection and a screen
// reader's place stay where they are.

export const $ = (id) => document.getElementById(id);

// text sets an element's text if it is another one.
export function text(el, value) {
  const s = String(value);
  if (el.textContent !== s) el.textContent = s;
}

// make returns a new element with a class and text. Nothing is ever read as HTML.
export function make(tag, cls, value) {
  const el = document.createElement(tag);
  if (cls) el.className = cls;
  if (value !== undefined) el.textContent = value;
  return el;
}

// sync gives parent one child for each item, in their order. key names an item for as long as it lives,
// create makes its element, and update fills it.
export function sync(parent, items, key, create, update) {
  const had = new Map([...parent.children].map((el) => [el.dataset.key, el]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = String(key(item));
    let el = had.get(k);
    if (el) had.delete(k);
    else {
      el = create(item);
      el.dataset.key = k;
    }
    if (el === at) at = at.nextElementSibling;
    else parent.insertBefore(el, at);
    update(el, item);
  }
  for (const el of had.values()) el.remove();
}

// table makes the head and the body of a table once. The roles keep what it is for screen readers where
// a phone shows its rows as cards.
export function table(el, columns) {
  if (el.tBodies.length) return el.tBodies[0];
  el.setAttribute('role', 'table');
  const head = el.createTHead();
  const row = head.insertRow();
  head.setAttribute('role', 'rowgroup');
  row.setAttribute('role', 'row');
  for (const c of columns) {
    const th = make('th', '', c);
    th.scope = 'col';
    th.setAttribute('role', 'columnheader');
    row.append(th);
  }
  const body = el.createTBody();
  body.setAttribute('role', 'rowgroup');
  return body;
}

// tableRow makes a row whose first cell is its header.
export function tableRow(columns) {
  const tr = make('tr');
  tr.setAttribute('role', 'row');
  columns.forEach((label, i) => {
    const cell = make(i ? 'td' : 'th');
    cell.setAttribute('role', i ? 'cell' : 'rowheader');
    if (i) cell.dataset.label = label;
    else cell.scope = 'row';
    tr.append(cell);
  });
  return tr;
}

// lines fills a cell with lines of text; those after the first are smaller.
export function lines(cell, values) {
  sync(cell, values.filter((v) => v !== '' && v !== undefined).map((v, i) => ({ v, i })), (x) => x.i,
    (x) => make('span', x.i ? 'quiet' : ''), (el, x) => text(el, x.v));
}

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });

// number writes a figure with at most three digits, and a count as it is. What is not known is a dash.
export function number(v) {
  if (v === null || v === undefined) return '–';
  return Number.isInteger(v) ? whole.format(v) : short.format(v);
}

export const percent = (v) => (v === null || v === undefined ? '–' : `${number(Math.round(v * 1000) / 10)} %`);

// name shortens a backend's URL to what tells it from the others.
export const name = (url) => url.replace(/^https?:\/\//, '');
