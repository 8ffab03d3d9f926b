// node build.mjs OUT: index.html and notices.txt in the folder OUT. What was built last is kept in web/dist with a hash of all it came
// from, so that each of the project's build folders does not build the page anew. Called by cmake/MhaWeb.cmake and `npm run build`.
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const dist = join(root, 'dist');
const results = ['index.html', 'notices.txt'];

function files(folder) {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? files(join(folder, entry.name)) : [join(folder, entry.name)],
  );
}

function hash() {
  const made = createHash('sha256');
  const sources = [...files('src'), 'index.html', 'vite.config.ts', 'notices.ts', 'package.json', 'package-lock.json'];
  for (const name of sources.sort()) made.update(`${name}\0`).update(readFileSync(join(root, name))).update('\0');
  return made.digest('hex');
}

async function build(stamp) {
  const { build: bundle } = await import('vite');
  mkdirSync(dist, { recursive: true });
  const fresh = mkdtempSync(join(dist, '.new-'));
  try {
    await bundle({ root, logLevel: 'warn', build: { outDir: fresh, emptyOutDir: true } });
    for (const name of results) renameSync(join(fresh, name), join(dist, name));
    writeFileSync(join(dist, 'stamp'), stamp);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

const out = resolve(process.argv[2] ?? dist);
const stamp = hash();
const known = existsSync(join(dist, 'stamp')) ? readFileSync(join(dist, 'stamp'), 'utf8') : '';
if (known !== stamp || !results.every((name) => existsSync(join(dist, name)))) await build(stamp);
if (out !== dist) {
  mkdirSync(out, { recursive: true });
  for (const name of results) copyFileSync(join(dist, name), join(out, name));
}
