import { describe, expect, it } from 'vitest';
import { kPaper, kViridis } from '../src/colour';
import { linksScene } from '../src/links_scene';
import { kMostCells, matrixLayout, matrixScene } from '../src/matrix_scene';
import { directionOf, escapeXml, fitted, letters, visible, writeSvg } from '../src/scene';

const measure = (text: string): number => letters(text).length * 8;
const kNasty = ['<b>bold</b>', '&amp;', '</text><script>alert(1)</script>', '"q" \'a\'', ']]>'];
const units = kNasty.map((text) => ({ text, special: false }));

describe('text', () => {
  it('is cut between what a reader sees as letters', () => {
    expect(fitted('short', 100, measure)).toBe('short');
    expect(fitted('👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦', 16, measure)).toBe('👩‍👩‍👧‍👦…');
    expect(fitted('e\u0301e\u0301e\u0301e\u0301', 24, measure)).toBe('e\u0301e\u0301…');
    expect(measure(fitted('x'.repeat(512), 80, measure))).toBeLessThanOrEqual(80);
  });

  it('has the direction of its first letter', () => {
    expect(['abc', '123 مرحبا', 'שלום', '中文', '…', '(ab'].map(directionOf)).toEqual(['ltr', 'rtl', 'rtl', 'ltr', 'ltr', 'ltr']);
  });

  it('is never nothing to see', () => {
    expect(visible('\t\n')).toBe('␉␊');
    expect(visible(' ')).toBe('␠');
    expect(visible('')).toBe('∅');
    expect(visible('\u200d')).toBe('U+200D');
    expect(visible('a b')).toBe('a b');
  });

  it('loses its markup and what XML does not have', () => {
    expect(escapeXml(`<a href="x">&'</a>\u0000\uffff`)).toBe('&lt;a href=&quot;x&quot;&gt;&amp;&#39;&lt;/a&gt;\ufffd\ufffd');
  });
});

describe('SVG files', () => {
  const matrix = { rows: 5, columns: 5, values: Float32Array.from({ length: 25 }, (_, i) => (i === 4 ? NaN : i / 25)) };
  const links = linksScene({
    queries: units, keys: units, links: [[0, 1, 0.5], [2, 2, -0.25]], signed: false, width: 560, rowHeight: 26, theme: kPaper, measure,
  });
  const cells = matrixScene({ matrix, queries: units, keys: units, signed: false, most: 1, theme: kPaper, measure, weights: kViridis });

  it('hold only the tags we write, whatever the words are', () => {
    for (const scene of [links, cells]) {
      const svg = writeSvg(scene, kNasty.join(' '), '#fff', 'serif');
      const tags = new Set(Array.from(svg.matchAll(/<\/?([a-zA-Z]+)/g), (match) => match[1]));
      expect([...tags].filter((tag) => !['svg', 'title', 'defs', 'pattern', 'path', 'rect', 'text'].includes(tag))).toEqual([]);
      const opened = (svg.match(/<text /g) ?? []).length;
      expect((svg.match(/<\/text>/g) ?? []).length).toBe(opened);
      expect(svg.replace(/&(amp|lt|gt|quot|#39);/g, '')).not.toContain('&');
    }
  });

  it('have a rectangle per cell, hatching where nobody may look, and a curve per link', () => {
    expect(cells.shapes.filter((shape) => shape.kind === 'hatch')).toHaveLength(1);
    expect(cells.shapes.filter((shape) => shape.kind === 'rect').length).toBeGreaterThanOrEqual(24);
    expect(links.shapes.filter((shape) => shape.kind === 'path')).toHaveLength(2);
    expect(links.shapes.filter((shape) => shape.kind === 'text')).toHaveLength(10);
  });

  it('are refused where they would have too many cells', () => {
    const wide = { rows: 1, columns: kMostCells + 1, values: new Float32Array(kMostCells + 1) };
    expect(() => matrixScene({ matrix: wide, queries: [], keys: [], signed: false, most: 1, theme: kPaper, measure, weights: kViridis })).toThrow('PNG');
  });
});

describe('matrix layout', () => {
  it('stays inside its box', () => {
    for (const [rows, columns, width, height] of [[9, 9, 700, 560], [512, 512, 360, 420], [3, 900, 300, 200]]) {
      const layout = matrixLayout(rows, columns, 80, width, height);
      expect(layout.left + layout.width).toBeLessThanOrEqual(width);
      expect(layout.top + layout.height).toBeLessThanOrEqual(height + 1e-6);
      expect(layout.cell).toBeGreaterThan(0);
    }
  });
});
