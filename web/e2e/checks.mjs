// What the checks of the real page share: a page per check that must be left without a problem, what it shows, and axe-core.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { open } from './browser.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** on(name, state, work, options): runs `work` on a page of its own. */
export function pagesOf(checks, browser, url) {
  return (name, start, work, options = {}) =>
    checks.run(name, async () => {
      const page = await open(browser, url, start, options);
      try {
        await work(page);
        assert.deepEqual(page.problems, []);
      } finally {
        await page.close();
      }
    });
}

export const state = (page) => page.evaluate(() => window.mhaStore.state);
export const readout = (page) => page.locator('.readout').textContent();

/** A number for what a canvas shows. */
export const pixels = (page, selector) =>
  page.evaluate((name) => {
    const canvas = document.querySelector(name);
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let sum = 0;
    for (let i = 0; i < data.length; ++i) sum = (Math.imul(sum, 31) + data[i]) | 0;
    return sum;
  }, selector);

export async function accessible(page, what) {
  // Not by a script element: the page's own policy forbids those, rightly.
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const told = found.violations.map((one) => `${what}: ${one.id}: ${one.help}: ${one.nodes.map((node) => node.html.slice(0, 200)).join(' | ')}`);
  assert.deepEqual(told, []);
}
