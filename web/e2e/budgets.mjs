// node e2e/budgets.mjs --mha build/release/mha: the page's budgets, measured in headless Chromium from its own trace: what a hover costs at
// 512 tokens, how soon the first view stands after the forward pass, DOM nodes, bytes sent. Exit code 1 past a budget, 77: not run.
import { option, startBrowser, startServer, hashOf } from './browser.mjs';

const kBudgets = { hover_median_ms: 8, hover_p95_ms: 16, first_view_ms: 1000, dom_nodes: 2000 };
const kHovers = Number(option('hovers') || 200);
const text = 'The quick brown fox jumps over the lazy dog and runs far away from here. '.repeat(40);
const kMainThread = /^(FunctionCall|EvaluateScript|EventDispatch|FireAnimationFrame|TimerFire|RunMicrotasks|MinorGC|MajorGC|V8\.GC.*|UpdateLayoutTree|Layout|PrePaint|Paint|Layerize|Commit|HitTest|IntersectionObserverController::computeIntersections|v8\.callFunction)$/;

const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
const round = (n) => Math.round(n * 100) / 100;

/** The time that events took, in ms, nested ones counted once: on the clock, and of it on this thread (on a busy machine that is less). */
function covered(events) {
  const sum = { wall: 0, thread: 0 };
  let end = -Infinity;
  for (const { ts, dur, tdur } of events.sort((x, y) => x.ts - y.ts)) {
    if (ts + dur <= end) continue;
    sum.wall += (ts + dur - Math.max(ts, end)) / 1000;
    sum.thread += (tdur ?? dur) / 1000;
    end = ts + dur;
  }
  return sum;
}

/** Where the time went, by kind of event, thread time beside it: on a busy machine the two differ. */
function explain(work, hovers) {
  const sums = {};
  for (const one of work.filter(({ name }) => !name.startsWith('V8.'))) {
    const sum = (sums[one.name] ??= { wall: 0, thread: 0, count: 0 });
    sum.wall += one.dur / 1000 / hovers;
    sum.thread += (one.tdur ?? 0) / 1000 / hovers;
    sum.count += 1 / hovers;
  }
  console.table(Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, Object.fromEntries(Object.entries(sum).map(([key, n]) => [key, round(n)]))])));
}

/** Script, layout and paint on the page's main thread for each hover, by the trace. */
async function hoverCosts(browser, page) {
  const boxes = await page.locator('.unit').evaluateAll((all) => {
    const frame = document.querySelector('.strip-body').getBoundingClientRect();
    return all.map((one) => one.getBoundingClientRect()).filter((box) => box.bottom < frame.bottom).map((box) => [box.x + box.width / 2, box.y + box.height / 2]);
  });
  await browser.startTracing(page, { categories: ['devtools.timeline', 'disabled-by-default-v8.gc', 'v8', 'blink.user_timing'] });
  for (let i = 0; i < kHovers; ++i) {
    await page.evaluate((n) => performance.mark(`hover ${n}`), i);
    const [x, y] = boxes[(i * 37) % boxes.length];
    await page.mouse.move(x, y);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await page.waitForTimeout(20);
  }
  await page.evaluate((n) => performance.mark(`hover ${n}`), kHovers);
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  const marks = traceEvents.filter((one) => one.cat?.includes('blink.user_timing') && /^hover \d+$/.test(one.name)).sort((x, y) => x.ts - y.ts);
  const { pid, tid } = marks[0];
  const work = traceEvents.filter((one) => one.ph === 'X' && one.pid === pid && one.tid === tid && kMainThread.test(one.name));
  const costs = marks.slice(0, -1).map((mark, i) => {
    const inside = work.filter((one) => one.ts >= mark.ts && one.ts < marks[i + 1].ts);
    return covered(inside);
  });
  if (option('explain')) explain(work, costs.length);
  return { wall: costs.map((one) => one.wall).sort((x, y) => x - y), thread: costs.map((one) => one.thread).sort((x, y) => x - y) };
}

/** From the answer of the forward pass to the frame that shows words, the selected head and its cell. */
async function firstView(page) {
  return page.evaluate(async () => {
    const shown = () => window.mhaStore.data && document.querySelector('.picture canvas') && document.querySelector('.unit') && document.querySelector('.atlas-canvas');
    while (!shown() || !window.mhaStore.data.weights(window.mhaStore.state.layer, window.mhaStore.state.unit)) await new Promise(requestAnimationFrame);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const asked = performance.getEntriesByType('resource').find((one) => one.name.endsWith('/api/runs'));
    return performance.now() - asked.responseEnd;
  });
}

const server = await startServer();
const browser = await startBrowser();
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
await page.goto(`${server.url}/${hashOf({ text, unit: 'piece', layer: 2, head: 3, view: 'links' })}`);
const first = await firstView(page);
await page.waitForFunction(() => window.mhaStore.data && !window.mhaStore.busy, null, { timeout: 120000 });
const about = await page.evaluate(() => {
  const { data, source } = window.mhaStore;
  const heads = data.run.layers.reduce((sum, layer) => sum + layer.heads, 0);
  return { tokens: data.queries('piece').length, heads, received: source.received, forward: data.run.milliseconds };
});
await page.waitForTimeout(500);
let requests = 0;
page.on('request', () => ++requests);
const found = { first_view_ms: round(first) };
for (const view of ['links', 'matrix']) {
  await page.evaluate((next) => window.mhaStore.update({ view: next }), view);
  await page.waitForTimeout(1000);
  const { wall, thread } = await hoverCosts(browser, page);
  found[`${view}: hover_median_ms`] = round(quantile(wall, 0.5));
  found[`${view}: hover_p95_ms`] = round(quantile(wall, 0.95));
  console.log(`${view}: of a hover on the page's own thread: median ${round(quantile(thread, 0.5))} ms, 95th percentile ${round(quantile(thread, 0.95))} ms`);
}
found.dom_nodes = await page.evaluate(() => document.querySelectorAll('*').length);
await browser.close();
server.stop();

console.log(`${about.tokens} tokens x ${about.heads} heads; forward pass ${round(about.forward)} ms; ${kHovers} hovers a view; ${requests} requests while hovering`);
console.log(`${round(about.received / 1e6)} MB received (all layers as bytes, the selected one as halves)`);
let past = requests > 0;
for (const [name, value] of Object.entries(found)) {
  const budget = kBudgets[name.replace(/^.*: /, '')];
  past ||= value > budget;
  console.log(`${value <= budget ? 'ok    ' : 'PAST  '} ${name} ${value} (budget ${budget})`);
}
process.exitCode = past ? 1 : 0;
