// A plugin of the build: collects the licences of the packages that went into the page, from what was really bundled, into notices.txt.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Plugin } from 'vite';

const kModules = '/node_modules/';

/** The folder of the package that a bundled module belongs to, or nothing. */
export function packageOf(id: string): string | null {
  const at = id.lastIndexOf(kModules);
  if (at < 0) return null;
  const parts = id.slice(at + kModules.length).split('/');
  return id.slice(0, at + kModules.length) + parts.slice(0, parts[0].startsWith('@') ? 2 : 1).join('/');
}

function noticeOf(folder: string): string {
  const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  if (!file || !existsSync(join(folder, file))) throw new Error(`${about.name} has no licence file: it cannot go into the page`);
  return `${about.name} ${about.version} (${about.license})\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
}

export function notices(): Plugin {
  return {
    name: 'notices',
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== 'chunk') continue;
        for (const id of Object.keys(chunk.modules)) {
          const folder = packageOf(id.replace(/^\0/, '').split('?')[0]);
          if (folder) folders.add(folder);
        }
      }
      const source = [...folders].sort().map(noticeOf).join(`\n${'-'.repeat(80)}\n\n`);
      this.emitFile({ type: 'asset', fileName: 'notices.txt', source: `The page of mha contains these packages.\n\n${source}` });
    },
  };
}
