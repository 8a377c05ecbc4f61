/* global uPlot */
import { $, number, sync, table, tableRow, text } from './dom.js';

// Lines differ in colour and in dashes. Colours are names of the style sheet.
const dashes = [undefined, [8, 4], [2, 3], [12, 3, 2, 3]];
const quantiles = { labels: ['p50', 'p90', 'p99'], colours: ['--prefill', '--handoff', '--transfer'] };

const figures = {
  rate: {
    labels: ['ok', 'failed', 'refused', 'client left'], colours: ['--stream', '--bad', '--transfer', '--queue'],
    series: (p) => [p.ok, p.failed, p.refused, p.gone],
  },
  ttft: { ...quantiles, series: (p) => [p.ttft.p50, p.ttft.p90, p.ttft.p99] },
  tpot: { ...quantiles, series: (p) => [p.tpot.p50, p.tpot.p90, p.tpot.p99] },
};

const height = 200;
const drawn = new Map(); // uPlot by the name of the figure
let latest = null;

const resized = new ResizeObserver(() => {
  for (const [id, plot] of drawn) plot.setSize({ width: $(`plot-${id}`).clientWidth, height });
});

// plots draws the figures anew.
export function plots(p) {
  latest = p;
  const times = p.ok.map((_, i) => p.start + i * p.step);
  for (const [id, figure] of Object.entries(figures)) {
    const data = [times, ...figure.series(p)];
    if (drawn.has(id)) drawn.get(id).setData(data);
    else drawn.set(id, draw($(`plot-${id}`), figure, data));
    text($(`sum-${id}`), summary(figure, data));
  }
  tabulate(p, times);
}

function draw(el, { labels, colours }, data) {
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(name).trim();
  const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line') } };
  resized.observe(el);
  return new uPlot({
    width: el.clientWidth, height,
    scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, 0.001) * 1.1] } },
    axes: [{ ...axis, space: 80, values: (plot, ticks) => ticks.map((t) => clock(t, plot)) }, { ...axis, size: 56, values: (_, ticks) => ticks.map(number) }],
    series: [{ label: 'time', value: (_, t) => (t ? new Date(t * 1000).toLocaleTimeString() : '–') }, ...labels.map((label, i) => ({
      label, stroke: colour(colours[i]), dash: dashes[i], width: 2, spanGaps: false,
      value: (_, v) => number(v), points: { size: 4 },
    }))],
  }, data, el);
}

// clock writes the time of a tick, with seconds only while the plot shows a few minutes.
function clock(t, plot) {
  const seconds = plot.scales.x.max - plot.scales.x.min < 300 ? { second: '2-digit' } : {};
  return new Date(t * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false, ...seconds });
}

// summary says the newest figures in words, for those who do not see the lines.
function summary(figure, [times, ...series]) {
  let at = times.length - 1;
  while (at > 0 && series.every((s) => s[at] === null)) at--;
  if (series.every((s) => s[at] === null)) return 'Nothing in the last 15 minutes.';
  const ago = Math.round(times.at(-1) - times[at]);
  return `${ago ? `${ago} s before the last step` : 'Last 5 s'}: ${figure.labels.map((l, i) => `${l} ${number(series[i][at])}`).join(', ')}`;
}

const columns = ['Until', 'ok/s', 'failed/s', 'TTFT p50', 'TTFT p90', 'TTFT p99', 'TPOT p50', 'TPOT p90', 'TPOT p99'];

// tabulate writes a row for the last step of each minute.
function tabulate(p, times) {
  const rows = times.map((_, i) => i).reverse().filter((_, i) => i % 12 === 0);
  sync(table($('figures'), columns), rows, (i) => times[i], () => tableRow(columns), (tr, i) => {
    const values = [new Date(times[i] * 1000).toLocaleTimeString(), number(p.ok[i]), number(p.failed[i]),
      ...['ttft', 'tpot'].flatMap((k) => ['p50', 'p90', 'p99'].map((q) => number(p[k][q][i])))];
    values.forEach((v, c) => text(tr.cells[c], v));
  });
}

// Colours of a canvas do not follow the style sheet by themselves.
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const plot of drawn.values()) plot.destroy();
  drawn.clear();
  if (latest) plots(latest);
});
