// node e2e/smoke.mjs --mha build/dev/mha: the page as a reader has it, in a real browser against the real server: what it opens on, hover,
// pin, keys, finder, changes, comparison, saving, accessibility (axe-core), words of any script, a phone. Exit code 77: not run.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Checks, hashOf, kTelescope, option, ready, startBrowser, startServer } from './browser.mjs';
import { writeCapture } from './capture_file.mjs';
import { accessible, pagesOf, pixels, readout, state } from './checks.mjs';

const server = await startServer();
const browser = await startBrowser();
const checks = new Checks();
const { url } = server;
const folder = mkdtempSync(join(tmpdir(), 'mha-page-'));

const on = pagesOf(checks, browser, url);

await on('opens on the telescope, reading 1 found', {}, async (page) => {
  assert.equal((await state(page)).text, kTelescope);
  await page.waitForFunction(() => window.mhaStore.state.a >= 0 && !window.mhaStore.busy);
  await page.waitForFunction(() => document.querySelector('.readout').textContent.includes('man → telescope'));
  assert.equal(await page.locator('.found tbody tr').first().getAttribute('class'), 'active');
  await page.waitForTimeout(350);
  assert.match(await page.locator('[role=status]').textContent(), /^L\d+ H\d+: man → telescope 0\.\d{3}$/);
  await accessible(page, 'opening');
});

await on('reading 2 is one click; Back returns to reading 1', {}, async (page) => {
  await page.waitForFunction(() => window.mhaStore.state.a >= 0 && !window.mhaStore.busy);
  const first = await state(page);
  await page.getByRole('button', { name: 'Reading 2' }).click();
  await page.waitForFunction(() => window.mhaStore.state.by === 'chain' && !window.mhaStore.busy);
  const second = await state(page);
  assert.notDeepEqual([second.layer, second.head], [first.layer, first.head]);
  await page.waitForFunction(() => document.querySelector('.readout').textContent.includes('man → astronomer'));
  await page.goBack();
  await page.waitForFunction(() => window.mhaStore.state.by === 'weight' && !window.mhaStore.busy);
  assert.deepEqual(await state(page), first);
});

await on('a hover draws all heads and asks for nothing; a click pins; Esc unpins', { text: kTelescope, layer: 5, head: 11 }, async (page) => {
  const before = await pixels(page, '.atlas-canvas');
  let asked = 0;
  page.on('request', () => ++asked);
  const word = page.locator('.unit', { hasText: 'telescope' });
  await word.hover();
  await page.waitForTimeout(100);
  const during = await pixels(page, '.atlas-canvas');
  assert.notEqual(during, before);
  assert.match(await readout(page), /telescope → /);
  await page.mouse.move(640, 790);
  await page.waitForTimeout(100);
  assert.equal(await pixels(page, '.atlas-canvas'), before);
  assert.equal(asked, 0);
  await word.click();
  await ready(page);
  assert.equal((await state(page)).pin, await page.locator('.unit').evaluateAll((all) => all.findIndex((one) => one.textContent === 'telescope')));
  assert.match(page.url(), /pin=/);
  await page.keyboard.press('Escape');
  await ready(page);
  assert.equal((await state(page)).pin, -1);
});

await on('everything by keyboard', { text: kTelescope, layer: 2, head: 3 }, async (page) => {
  const strip = page.locator('.unit[tabindex="0"]');
  for (let i = 0; i < 20 && !(await strip.evaluate((one) => one === document.activeElement)); ++i) await page.keyboard.press('Tab');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'man');
  await page.keyboard.press('Enter');
  await ready(page);
  assert.equal((await state(page)).pin, 2);
  await page.keyboard.press('Tab');
  const grid = page.locator('.cell[tabindex="0"]');
  for (let i = 0; i < 6 && !(await grid.evaluate((one) => one === document.activeElement)); ++i) await page.keyboard.press('Tab');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => window.mhaStore.state.layer === 3 && window.mhaStore.state.head === 4);
  await page.waitForFunction(() => document.activeElement.classList.contains('chosen'));
  await page.keyboard.press(']');
  await page.keyboard.press('[');
  await page.keyboard.press('[');
  assert.equal((await state(page)).layer, 2);
  await page.keyboard.press('v');
  assert.equal((await state(page)).view, 'matrix');
  await page.keyboard.press('/');
  await page.waitForFunction(() => document.activeElement.id === 'find-b');
  await page.keyboard.press('t');
  await page.waitForFunction(() => window.mhaStore.state.b >= 0);
  assert.ok((await page.locator('.found tbody tr').count()) > 10);
});

await on('dialogs: help and save, and what is saved', { text: kTelescope, layer: 5, head: 11, view: 'matrix' }, async (page) => {
  await page.keyboard.press('?');
  await page.getByRole('dialog').waitFor();
  await accessible(page, 'help');
  await page.keyboard.press('Escape');
  const starts = { SVG: '<svg', CSV: 'from_index,from', JSON: '{"model"', PNG: '\u0089PNG' };
  for (const [name, start] of Object.entries(starts)) {
    await page.keyboard.press('s');
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name }).click()]);
    const text = readFileSync(await file.path(), 'latin1');
    assert.ok(text.startsWith(start), `${name} starts with ${text.slice(0, 20)}`);
    if (name === 'CSV') assert.equal(text.trim().split('\r\n').length, 1 + 11 * 11);
  }
});

await on('x zeroes a head: cosine, what moved, undo', { text: kTelescope, layer: 0, head: 3, view: 'matrix', panel: 'change' }, async (page) => {
  await page.keyboard.press('x');
  await page.waitForFunction(() => window.mhaStore.other && !window.mhaStore.busy);
  await page.keyboard.press(']');
  await page.waitForFunction(() => document.querySelector('.detail .note')?.textContent.includes('Difference'));
  const cosine = Number(await page.locator('.outcome b').textContent());
  assert.ok(cosine > 0 && cosine < 1, `cosine ${cosine}`);
  assert.equal(await page.locator('.cell.zeroed').count(), 1);
  await accessible(page, 'intervene');
  await page.getByRole('button', { name: 'Undo all' }).click();
  await ready(page);
  assert.deepEqual((await state(page)).zeroed, []);
});

await on('effects of all heads colour the atlas', { text: kTelescope, atlas: 'effect', sorted: 1 }, async (page) => {
  await page.waitForFunction(() => window.mhaStore.data.effects, null, { timeout: 60000 });
  await page.waitForTimeout(100);
  const told = await page.locator('.cell').evaluateAll((all) => all.map((one) => Number(one.getAttribute('aria-label').split(' ')[2])));
  assert.ok(told.length >= 12 && told.every((value) => value >= 0));
  assert.deepEqual(told, [...told].sort((x, y) => y - x));
});

await on('two texts: tables are subtracted where counts agree', { text: kTelescope, against: 'text', second: 'The man saw the astronomer with a moustache.', panel: 'compare', unit: 'word', view: 'matrix' }, async (page) => {
  await page.waitForFunction(() => document.querySelector('.detail .note')?.textContent.includes('Difference'));
  assert.match(await page.locator('.pairs').textContent(), /telescope.*moustache/);
  await accessible(page, 'compare');
});

await on('two texts of other lengths: said, and measures are subtracted', { text: kTelescope, against: 'text', second: 'One two.', atlas: 'entropy' }, async (page) => {
  await page.waitForFunction(() => document.querySelector('.detail .note')?.textContent.includes('cannot be subtracted'));
  assert.match(await page.locator('.atlas .legend').textContent(), /the difference/);
});

await on('a second text that is refused: said, and nothing is subtracted any more', { text: kTelescope, against: 'text', second: 'The man saw the astronomer with a moustache.', view: 'matrix' }, async (page) => {
  await page.waitForFunction(() => document.querySelector('.detail .note')?.textContent.includes('Difference'));
  await page.evaluate(() => window.mhaStore.update({ second: '\u200b' }));
  await ready(page);
  assert.match(await page.locator('[role=alert]').textContent(), /The second text: .*\. Write a text with a word in it\.$/);
  assert.equal(await page.locator('.detail .note').count(), 0);
  assert.ok(page.problems.every((problem) => /status of 400/.test(problem)), page.problems.join());
  page.problems.length = 0;
  await page.evaluate((second) => window.mhaStore.update({ second }), 'The quick brown fox jumps over it. '.repeat(90));
  await ready(page);
  assert.match(await page.locator('.notes').textContent(), /the second text has \d+: the last \d+ were cut/);
});

await on('a long text: saved weights are no bytes, rows sum to 1', { text: 'The quick brown fox jumps over it. '.repeat(40), layer: 2, head: 3, view: 'table' }, async (page) => {
  await page.waitForFunction(() => document.querySelectorAll('.numbers tbody tr').length === 100);
  assert.match(await page.locator('.numbers tbody td').first().textContent(), / · \d+$/);
  await page.keyboard.press('s');
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()]);
  assert.equal(file.suggestedFilename(), 'mha-L2H3.csv');
  const sums = [];
  for (const line of readFileSync(await file.path(), 'utf8').trim().split('\r\n').slice(1)) {
    const [row, weight] = [Number(line.split(',')[0]), Number(line.split(',').at(-1))];
    sums[row] = (sums[row] ?? 0) + weight;
  }
  assert.ok(sums.length > 210 && sums.every((sum) => Math.abs(sum - 1) < 1e-3), `${Math.min(...sums)} to ${Math.max(...sums)}`);
});

await on('the finder: times of words, none of a special token', { text: kTelescope, a: 2, b: 8, panel: 'find', by: 'lift' }, async (page) => {
  const column = (n) => page.locator(`.found tbody td:nth-of-type(${n})`).allTextContents();
  await page.waitForFunction(() => /\d×$/.test(document.querySelector('.found tbody td:nth-of-type(4)')?.textContent));
  const lifts = (await column(3)).map((text) => Number(text.replace('−', '-')));
  assert.deepEqual(lifts, [...lifts].sort((x, y) => y - x));
  await page.evaluate(() => window.mhaStore.update({ b: 0 }));
  await ready(page);
  assert.deepEqual(new Set([...(await column(3)), ...(await column(4))]), new Set(['–']));
});

await on('hidden words are struck out and have a chip; pieces too', { text: kTelescope, hidden: 2, against: 'before', panel: 'change', unit: 'piece', pin: 2 }, async (page) => {
  assert.equal(await page.locator('.unit.hidden').textContent(), 'man');
  await accessible(page, 'hidden');
  await page.getByRole('button', { name: /^Show .man.$/ }).waitFor();
  await page.getByRole('list', { name: 'Hidden words' }).getByRole('button').click();
  await ready(page);
  const { hidden, against } = await state(page);
  assert.deepEqual([hidden, against], [[], '']);
});

await on('arrows move a zoomed matrix, and choose words where it is not zoomed', { text: kTelescope, view: 'matrix', layer: 1 }, async (page) => {
  const picture = page.locator('.picture');
  await picture.focus();
  for (const key of ['+', '+', 'ArrowRight', 'ArrowDown']) await page.keyboard.press(key);
  const moved = await state(page);
  await page.keyboard.press('ArrowLeft');
  const back = await state(page);
  assert.ok(back.zoom[2] < moved.zoom[2] && back.zoom[1] === moved.zoom[1], `${moved.zoom} then ${back.zoom}`);
  assert.deepEqual([back.layer, back.head], [1, 0]);
  await page.keyboard.press('0');
  await page.keyboard.press('ArrowDown');
  assert.equal((await state(page)).head, 1);
});

await on('forced colours keep what colours say', { text: kTelescope, atlas: 'entropy', zeroed: '0.3' }, async (page) => {
  const images = await page.locator('.ramp, .cell.zeroed').evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundImage));
  assert.ok(images.length >= 2 && images.every((image) => /gradient/.test(image)), images.join());
}, { forcedColors: 'active' });

await on('no sinks and norms', { text: kTelescope, layer: 5, head: 11, kind: 'sinkless', pin: 2, view: 'matrix' }, async (page) => {
  await page.waitForFunction(() => /went to sinks/.test(document.querySelector('.readout').textContent));
  await page.getByRole('radio', { name: 'norm' }).check();
  await ready(page);
  await page.waitForFunction(() => /man → .* \d/.test(document.querySelector('.readout').textContent));
  assert.equal(await page.locator('.note.problem').count(), 0);
});

const kEvil = `<b>bold</b> &amp; &lt;i&gt; <img src=x onerror=alert(1)> "q" </script><script>alert(2)</script>`;
const kOdd = `مرحبا بالعالم שלום 中文 👩‍👩‍👧‍👦 e\u0301 नमस्ते ${'x'.repeat(512)} end`;
await on('a sentence of tags and entities is only text', { text: kEvil, view: 'table', pin: 2 }, async (page) => {
  assert.equal(await page.locator('.strip b, .strip img, .strip i, .numbers b, .numbers img, main script').count(), 0);
  const shown = await page.locator('.unit:not(.special)').allTextContents();
  assert.equal(shown.join('').replace(/\s/g, ''), kEvil.replace(/\s/g, ''));
  for (const view of ['links', 'matrix']) {
    await page.goto(`${url}/${hashOf({ text: kEvil, view, pin: 2 })}`);
    await ready(page);
  }
});

await on('words of any script and length stay inside', { text: kOdd, view: 'matrix', pin: 1 }, async (page) => {
  const size = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]);
  assert.ok(size[0] <= 1280 && size[1] <= 800, size.join(' x '));
  const told = await page.locator('.unit').evaluateAll((all) => all.map((one) => [one.textContent.length, one.getBoundingClientRect().width]));
  assert.ok(told.every(([length, width]) => length > 0 && width > 4 && width <= 330));
  assert.ok(told.some(([length]) => length === 512));
});

await on('512 tokens: at most 2,000 DOM nodes, no scrolling', { text: 'The quick brown fox jumps over it. '.repeat(90), unit: 'piece', view: 'links' }, async (page) => {
  assert.match(await page.locator('.notes').textContent(), /were cut/);
  const nodes = await page.evaluate(() => document.querySelectorAll('*').length);
  assert.ok(nodes <= 2000, `${nodes} nodes`);
  assert.equal(await page.evaluate(() => document.documentElement.scrollHeight), 800);
});

await on('a phone, dark, reduced motion: nothing sideways', { text: kTelescope, pin: 2 }, async (page) => {
  for (const view of ['links', 'matrix', 'table']) {
    await page.evaluate((next) => window.mhaStore.update({ view: next }), view);
    await ready(page);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, view);
    await accessible(page, `phone ${view}`);
  }
  assert.match(await page.evaluate(() => getComputedStyle(document.querySelector('main')).transitionDuration), /^0s$/);
  await page.evaluate(() => window.mhaStore.update({ atlas: 'entropy', sorted: true, kind: 'sinkless', view: 'matrix', zeroed: [[0, 3]], against: 'before' }));
  await ready(page);
  assert.match(await page.locator('.atlas .legend').textContent(), /the difference/);
  assert.match(await readout(page), /went to sinks$/);
  const cut = await page.locator('.legend .quiet, .readout').evaluateAll((all) => all.filter((one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight).map((one) => one.textContent));
  assert.deepEqual(cut, []);
  const captions = await page.locator('.caption').evaluateAll((all) => all.map((one) => one.getBoundingClientRect()).map(({ left, right, top }) => [left, right, top]));
  assert.ok(captions.every(([left, , top], i) => i === 0 || top !== captions[i - 1][2] || left >= captions[i - 1][1]), 'names overlap');
  await accessible(page, 'phone, sorted');
  await page.locator('.unit', { hasText: 'telescope' }).tap();
  await ready(page);
  assert.notEqual((await state(page)).pin, 2);
}, { viewport: { width: 390, height: 844 }, colorScheme: 'dark', reducedMotion: 'reduce', hasTouch: true });

await on('the self-contained file works without a server', { text: kTelescope, layer: 5, head: 11, pin: 2 }, async (page) => {
  await page.keyboard.press('s');
  const [file] = await Promise.all([page.waitForEvent('download', { timeout: 60000 }), page.getByRole('link', { name: 'HTML' }).click()]);
  const kept = await browser.newPage();
  const problems = [];
  kept.on('pageerror', (problem) => problems.push(String(problem)));
  kept.on('request', (request) => !/^(file|data|blob):/.test(request.url()) && problems.push(`asked for ${request.url()}`));
  const path = join(folder, 'page.html');
  await file.saveAs(path);
  await kept.goto(`file://${path}`);
  await ready(kept);
  assert.deepEqual((await state(kept)).pin, 2);
  assert.match(await kept.locator('.notes').textContent(), /recorded/);
  await kept.locator('.unit', { hasText: 'astronomer' }).hover();
  await kept.waitForFunction(() => document.querySelector('.readout').textContent.includes('astronomer → '));
  assert.equal(await kept.locator('.atlas option[value=effect]').count(), 0);
  await accessible(kept, 'self-contained file');
  assert.deepEqual(problems, []);
  await kept.close();
});
server.stop();

/** Tensors of another program: `work` on the page of a server that shows them. */
async function onTensors(name, sizes, start, work) {
  if (!option('mha')) return;
  const path = join(folder, 'capture.safetensors');
  writeCapture(path, sizes);
  const other = await startServer(['--tensors', path]);
  await pagesOf(checks, browser, other.url)(name, start, work);
  other.stop();
}

const kGrouped = { layers: 2, heads: 4, kvHeads: 2, length: 12, dim: 8 };
await onTensors('tensors: causal heads that share keys, hidden cells told apart', kGrouped, { unit: 'piece', view: 'matrix', layer: 1, head: 3, pin: 2 }, async (page) => {
  assert.match(await page.locator('.note').first().textContent(), /causal/);
  assert.equal(await page.locator('.bracket').count(), 2);
  await page.keyboard.press('v');
  const cells = await page.locator('.numbers tbody tr').nth(2).locator('td').allTextContents();
  assert.ok(cells.slice(0, 3).every((cell) => /^[01]\.\d{3}$/.test(cell)) && cells.slice(3).every((cell) => cell === '–'), cells.join(' '));
  assert.ok(Math.abs(cells.slice(0, 3).reduce((sum, cell) => sum + Number(cell), 0) - 1) < 0.003);
  await accessible(page, 'tensors');
});

const kLong = { layers: 1, heads: 2, kvHeads: 1, length: 6000, dim: 8 };
await onTensors('tensors: 6,000 tokens are a map, zoomed to single pairs', kLong, { unit: 'piece', head: 1 }, async (page) => {
  const settled = () => page.waitForFunction(() => !/…/.test(document.querySelector('.where').textContent) && !window.mhaStore.busy);
  await page.waitForTimeout(400);
  await settled();
  const whole = await pixels(page, '.picture canvas');
  const asked = [];
  page.on('request', (request) => asked.push(new URL(request.url()).searchParams));
  await page.locator('.picture').focus();
  for (let i = 0; i < 14; ++i) await page.keyboard.press('+');
  await page.waitForTimeout(400);
  await settled();
  assert.notEqual(await pixels(page, '.picture canvas'), whole);
  const [from, to] = asked.at(-1).get('queries').split(':').map(Number);
  assert.equal(to - from, Number(asked.at(-1).get('rows')), 'one cell per piece when near');
  await page.locator('.unit').nth(5).click();
  await ready(page);
  assert.match(await page.locator('.atlas .legend').textContent(), /to whom/);
  assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) <= 2000);
});

rmSync(folder, { recursive: true, force: true });
await browser.close();
checks.finish();
