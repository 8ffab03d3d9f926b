// The size rules of HACKING.md for the page's own files: under 500 lines, functions under 60, at most 6 parameters.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { expect, it } from 'vitest';

const root = join(__dirname, '..');

function* functions(file: ts.SourceFile, node: ts.Node = file): Generator<[string, number, number]> {
  if (ts.isFunctionLike(node) && 'body' in node && node.body) {
    const [first, last] = [node.getStart(), node.end].map((at) => file.getLineAndCharacterOfPosition(at).line);
    yield [`${file.fileName}:${first + 1}`, last - first + 1, node.parameters.length];
  }
  for (const child of node.getChildren()) yield* functions(file, child);
}

it('files and functions stay small', () => {
  const names = ['src', 'tests', 'e2e', '.'].flatMap((folder) =>
    readdirSync(join(root, folder)).filter((name) => /\.(tsx?|mjs|css)$/.test(name)).map((name) => join(folder, name)),
  );
  expect(names.length).toBeGreaterThan(30);
  for (const name of names) {
    const text = readFileSync(join(root, name), 'utf8');
    expect(text.split('\n').length, name).toBeLessThan(500);
    if (name.endsWith('.css')) continue;
    for (const [where, lines, parameters] of functions(ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true))) {
      expect(lines, where).toBeLessThan(60);
      expect(parameters, where).toBeLessThanOrEqual(6);
    }
  }
}, 30000);
