// One head's table as coloured cells: where cells and labels go for a zoom, the pixels for a canvas, and the shapes for a file. Pure but
// for the pixels; detail_matrix.tsx shows it, save.ts writes it.
import type { UnitLabel } from './contract';
import { stepOf, type Palette, type Theme } from './colour';
import { fitted, type Scene, type Shape } from './scene';
import type { Matrix } from './table';

/** The part of a picture that is in view, in units: `k` times as large as the whole. */
export interface Zoom {
  k: number;
  query: number;
  key: number;
}

export interface MatrixPicture {
  matrix: Matrix;
  queries: UnitLabel[];
  keys: UnitLabel[];
  signed: boolean;
  /** The value of the last colour; -most is the first one where signed. */
  most: number;
  /** Colours of weights; differences have the theme's. */
  weights: Palette;
  theme: Theme;
  measure: (text: string, size: number) => number;
}

export interface MatrixLayout {
  left: number;
  top: number;
  /** The cells' rectangle. */
  width: number;
  height: number;
  cell: number;
}

const kLargestCell = 48;

/** Where cells go in width x height: square cells, room for the labels where they can be read. */
export function matrixLayout(rows: number, columns: number, labels: number, width: number, height: number): MatrixLayout {
  const margin = Math.min(labels + 18, Math.floor(Math.min(width, height) * 0.28));
  const cell = Math.min(kLargestCell, (width - margin - 24) / columns, (height - margin) / rows);
  return { left: margin, top: margin, width: cell * columns, height: cell * rows, cell };
}

/** The widest label, at most what is worth giving. */
export function labelRoom(units: UnitLabel[], measure: (text: string) => number): number {
  let widest = 24;
  for (const unit of units.slice(0, 600)) widest = Math.max(widest, measure(unit.text.slice(0, 40)));
  return Math.min(widest, 130);
}

export function colourAt(picture: MatrixPicture, value: number): string {
  const palette = picture.signed ? picture.theme.signed : picture.weights;
  return palette.css[stepOf(value, picture.signed ? -picture.most : 0, picture.most)] ?? 'none';
}

/** One pixel per cell, transparent where nobody may see. */
export function matrixPixels(picture: MatrixPicture): ImageData {
  const { matrix, signed, most } = picture;
  const image = new ImageData(matrix.columns, matrix.rows);
  const out = new Uint32Array(image.data.buffer);
  const palette = (signed ? picture.theme.signed : picture.weights).words;
  for (let i = 0; i < out.length; ++i) {
    const step = stepOf(matrix.values[i], signed ? -most : 0, most);
    out[i] = step < 0 ? 0 : palette[step];
  }
  return image;
}

export const kMostCells = 20000;

/** The whole table as shapes; throws where it has too many cells to be a vector picture. */
export function matrixScene(picture: MatrixPicture): Scene {
  const { matrix } = picture;
  if (matrix.rows * matrix.columns > kMostCells) {
    throw new RangeError(`${matrix.rows} x ${matrix.columns} cells are more than ${kMostCells}: save a PNG, or the links`);
  }
  const room = labelRoom([...picture.queries, ...picture.keys], (text) => picture.measure(text, 12)) + 12;
  const cell = Math.max(10, Math.min(32, 640 / matrix.columns));
  const shapes: Shape[] = [];
  for (let i = 0; i < matrix.values.length; ++i) {
    const box = { x: room + (i % matrix.columns) * cell, y: room + Math.floor(i / matrix.columns) * cell, w: cell, h: cell };
    if (Number.isNaN(matrix.values[i])) shapes.push({ kind: 'hatch', ...box, stroke: picture.theme.line });
    else shapes.push({ kind: 'rect', ...box, fill: colourAt(picture, matrix.values[i]) });
  }
  const size = Math.min(12, cell);
  const fit = (text: string): string => fitted(text, room - 10, (part) => picture.measure(part, size));
  picture.queries.forEach((unit, i) =>
    shapes.push({ kind: 'text', x: room - 6, y: room + (i + 0.5) * cell, text: fit(unit.text), full: unit.text, size, fill: picture.theme.ink, anchor: 'end' }),
  );
  picture.keys.forEach((unit, j) =>
    shapes.push({ kind: 'text', x: room + (j + 0.5) * cell, y: room - 6, text: fit(unit.text), full: unit.text, size, fill: picture.theme.ink, turn: -90 }),
  );
  const height = room + matrix.rows * cell;
  shapes.push(...colourBar(picture, room, height + 16, Math.min(200, matrix.columns * cell)));
  return { width: room + matrix.columns * cell + 8, height: height + 48, shapes };
}

function colourBar(picture: MatrixPicture, x: number, y: number, width: number): Shape[] {
  const least = picture.signed ? -picture.most : 0;
  const shapes: Shape[] = Array.from({ length: 32 }, (_, i) => ({
    kind: 'rect',
    x: x + (i * width) / 32,
    y,
    w: width / 32 + 0.5,
    h: 8,
    fill: colourAt(picture, least + ((i + 0.5) / 32) * (picture.most - least)),
  }));
  const tick = (at: number, value: number, anchor: 'start' | 'end'): Shape => ({
    kind: 'text', x: at, y: y + 18, text: String(Math.round(value * 100) / 100), size: 11, fill: picture.theme.quiet, anchor,
  });
  return [...shapes, tick(x, least, 'start'), tick(x + width, picture.most, 'end')];
}
