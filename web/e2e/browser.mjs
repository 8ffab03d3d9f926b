// What the scripts on the real page share: the server (mha serve, started here, or one that runs), Debian's Chromium, and a list of checks.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

export const kTelescope = 'The man saw the astronomer with a telescope.';

/** The value after a --name on the command line. */
export function option(name) {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? '' : (process.argv[at + 1] ?? '');
}

/** Exit code 77: not run, and why. */
export function skip(why) {
  console.log(why);
  process.exit(77);
}

/** Starts `mha serve` on a free port, with `more` arguments; { url, stop }. */
export async function startServer(more = []) {
  const url = option('url');
  if (url && !more.length) return { url: url.replace(/\/$/, ''), stop: () => {} };
  const mha = option('mha');
  if (!existsSync(mha)) skip(`no ${mha || '--mha'}: build the command first`);
  const given = ['model', 'web-root'].filter((name) => option(name) && !(name === 'model' && more.length));
  const args = ['serve', '--port', '0', ...given.flatMap((name) => [`--${name}`, option(name)]), ...more];
  const child = spawn(mha, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const address = await new Promise((resolve, reject) => {
    let told = '';
    child.stdout.on('data', (chunk) => {
      told += chunk;
      const found = /http:\/\/[^\s/]+/.exec(told);
      if (found) resolve(found[0]);
    });
    child.on('exit', (code) => reject(new Error(`mha serve ended with ${code}: ${told}`)));
  });
  return { url: address, stop: () => child.kill('SIGINT') };
}

export async function startBrowser() {
  const path = [process.env.MHA_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'].find((one) => one && existsSync(one));
  if (!path) skip('no Chromium: apt-get install chromium, or set MHA_CHROMIUM');
  return chromium.launch({ executablePath: path, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

export const hashOf = (state) => `#${new URLSearchParams(state)}`;

/** Waits until the page has all it asked for. */
export async function ready(page) {
  await page.waitForFunction(() => window.mhaStore?.data && !window.mhaStore.busy, null, { timeout: 60000 });
  await page.waitForTimeout(60);
}

export async function open(browser, url, state = {}, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ...options });
  page.setDefaultTimeout(15000);
  page.problems = [];
  page.on('pageerror', (problem) => page.problems.push(String(problem.stack ?? problem)));
  page.on('console', (message) => message.type() === 'error' && page.problems.push(message.text()));
  page.on('dialog', (dialog) => {
    page.problems.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (request) => {
    if (!/^(data|blob|file):/.test(request.url()) && !request.url().startsWith(url)) page.problems.push(`asked elsewhere: ${request.url()}`);
  });
  await page.goto(`${url}/${Object.keys(state).length ? hashOf(state) : ''}`);
  await ready(page);
  return page;
}

export class Checks {
  failed = 0;
  passed = 0;
  async run(name, work) {
    const start = Date.now();
    try {
      await work();
      ++this.passed;
      console.log(`ok      ${name} (${Date.now() - start} ms)`);
    } catch (problem) {
      ++this.failed;
      console.log(`FAILED  ${name}\n${problem.stack ?? problem}`);
    }
  }
  finish() {
    console.log(`${this.passed} passed, ${this.failed} failed`);
    process.exitCode = this.failed ? 1 : 0;
  }
}
