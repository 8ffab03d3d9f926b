// The pixels of the head atlas: all heads in one ImageData. Each cell is a small picture of the head's table, the active unit's row over
// its column, or one colour for one number. Called by atlas.tsx for each hover: no allocation that grows with the text beyond what is kept.
import type { Head, UnitKind } from './contract';
import { stepOf, type Palette } from './colour';
import { cellBounds, thumbnail } from './matrix_math';
import type { RunData } from './run_data';
import type { Table } from './table';

export interface AtlasLayout {
  /** Heads in the order they are shown, and where: column and row. */
  places: { head: Head; column: number; row: number }[];
  columns: number;
  rows: number;
  cell: number;
  /** Room under each cell, for its name where heads are sorted. */
  caption: number;
  width: number;
  height: number;
}

const kGap = 3;

/** Where cells go: layers x heads, or in the given order. */
export function atlasLayout(headsOf: number[], order: Head[] | null, width: number, height: number): AtlasLayout {
  const columns = Math.max(...headsOf);
  const heads = headsOf.flatMap((count, layer) => Array.from({ length: count }, (_, head): Head => [layer, head]));
  const rows = order ? Math.ceil(heads.length / columns) : headsOf.length;
  const caption = order ? 13 : 0;
  const tall = Math.floor(height / rows) - caption;
  const cell = Math.max(10, Math.min(56, Math.floor(width / columns), Math.max(tall, 18)));
  const places = (order ?? heads).map((head, i) =>
    order ? { head, column: i % columns, row: Math.floor(i / columns) } : { head, column: head[1], row: head[0] },
  );
  return { places, columns, rows, cell, caption, width: columns * cell, height: rows * (cell + caption) };
}

export interface Thumbnail {
  steps: Uint8Array;
  rows: number;
  columns: number;
}

/** Thumbnails by run, unit and size: made once, drawn often. */
export class Thumbnails {
  private readonly made = new Map<string, Thumbnail>();
  get(data: RunData, unit: UnitKind, [layer, head]: Head, size: number): Thumbnail | null {
    const table = data.weights(layer, unit);
    if (!table) return null;
    const key = `${data.run.run} ${unit} ${layer} ${head} ${size}`;
    let found = this.made.get(key);
    if (!found) {
      if (this.made.size > 8192) this.made.clear();
      const [rows, columns] = [Math.min(size, table.shape[1]), Math.min(size, table.shape[2])];
      found = { steps: thumbnail(table, head, rows, columns), rows, columns };
      this.made.set(key, found);
    }
    return found;
  }
}

export class AtlasCanvas {
  private image: ImageData | null = null;
  private pixels = new Uint32Array(0);
  private row = new Uint32Array(0);

  constructor(
    readonly layout: AtlasLayout,
    readonly ratio: number,
    private readonly weights: Palette,
  ) {}

  get side(): number {
    return Math.max(4, Math.round((this.layout.cell - kGap) * this.ratio));
  }

  begin(): void {
    const { width, height } = this.layout;
    this.image ??= new ImageData(Math.max(1, Math.round(width * this.ratio)), Math.max(1, Math.round(height * this.ratio)));
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.pixels.fill(0);
    if (this.row.length !== this.side) this.row = new Uint32Array(this.side);
  }

  put(context: CanvasRenderingContext2D): void {
    if (this.image) context.putImageData(this.image, 0, 0);
  }

  private origin(place: { column: number; row: number }): number {
    const { cell, caption } = this.layout;
    const x = Math.round((place.column * cell + 1) * this.ratio);
    const y = Math.round((place.row * (cell + caption) + 1) * this.ratio);
    return y * this.image!.width + x;
  }

  /** One colour for the whole cell. */
  flat(place: { column: number; row: number }, value: number, least: number, most: number, palette: Palette): void {
    const step = stepOf(value, least, most);
    if (step < 0) return;
    const from = this.origin(place);
    for (let y = 0; y < this.side; ++y) {
      const start = from + y * this.image!.width;
      this.pixels.fill(palette.words[step], start, start + this.side);
    }
  }

  /** A head's whole table. */
  table(place: { column: number; row: number }, picture: Thumbnail): void {
    const { steps, rows, columns } = picture;
    const from = this.origin(place);
    const colours = this.weights.words;
    for (let y = 0; y < this.side; ++y) {
      const source = Math.floor((y * rows) / this.side) * columns;
      const start = from + y * this.image!.width;
      for (let x = 0; x < this.side; ++x) this.pixels[start + x] = colours[steps[source + Math.floor((x * columns) / this.side)]];
    }
  }

  /** The active unit: upper half to whom it attends, lower half who attends to it. */
  strips(place: { column: number; row: number }, to: Uint8Array | null, from: { table: Table; head: number; key: number } | null): void {
    const half = to && from ? Math.floor(this.side / 2) : to ? this.side : 0;
    if (to) {
      this.pool(to.length, (i) => to[i]);
      this.fillRows(place, 0, from ? half - 1 : half);
    }
    if (from) {
      const [, rows, columns] = from.table.shape;
      const raw = from.table.raw;
      const start = from.head * rows * columns + from.key;
      this.pool(rows, (i) => raw[start + i * columns]);
      this.fillRows(place, half, this.side);
    }
  }

  /** The same from two rows of their own, where there is no table. */
  twoStrips(place: { column: number; row: number }, to: Uint8Array | null, from: Uint8Array | null): void {
    if (!to || !from) return;
    const half = Math.floor(this.side / 2);
    this.pool(to.length, (i) => to[i]);
    this.fillRows(place, 0, half - 1);
    this.pool(from.length, (i) => from[i]);
    this.fillRows(place, half, this.side);
  }

  private pool(length: number, at: (i: number) => number): void {
    for (let x = 0; x < this.side; ++x) {
      const [begin, end] = cellBounds(x, this.side, length);
      let most = 0;
      for (let i = begin; i < end; ++i) {
        const value = at(i);
        if (value > most) most = value;
      }
      this.row[x] = this.weights.words[most];
    }
  }

  private fillRows(place: { column: number; row: number }, top: number, bottom: number): void {
    const from = this.origin(place);
    for (let y = top; y < bottom; ++y) this.pixels.set(this.row, from + y * this.image!.width);
  }
}
