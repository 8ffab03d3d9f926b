// Tiles of a head's map, by need: level z holds 2^z pieces per cell, a tile is kTile x kTile cells. Kept while they are likely to be wanted
// again; at most two are asked for at once, the latest wish first.
import { stepOf, type Palette } from './colour';
import type { RunData } from './run_data';

export const kTile = 256;
const kKept = 256;

export interface TileId {
  z: number;
  row: number;
  column: number;
}

const nameOf = ({ z, row, column }: TileId): string => `${z} ${row} ${column}`;

/** The level where a cell is about a pixel. */
export function levelFor(piecesPerPixel: number): number {
  return Math.max(0, Math.round(Math.log2(Math.max(piecesPerPixel, 1))));
}

/** Tiles of a level that a rectangle of pieces touches. */
export function tilesIn(z: number, box: { top: number; bottom: number; left: number; right: number }): TileId[] {
  const span = kTile * 2 ** z;
  const tiles: TileId[] = [];
  for (let row = Math.floor(box.top / span); row * span < box.bottom; ++row) {
    for (let column = Math.floor(box.left / span); column * span < box.right; ++column) tiles.push({ z, row, column });
  }
  return tiles;
}

/** The pieces a tile covers, inside rows x columns. */
export function boxOf({ z, row, column }: TileId, rows: number, columns: number): { top: number; bottom: number; left: number; right: number } {
  const span = kTile * 2 ** z;
  return {
    top: row * span,
    bottom: Math.min(rows, (row + 1) * span),
    left: column * span,
    right: Math.min(columns, (column + 1) * span),
  };
}

export class Tiles {
  private readonly kept = new Map<string, HTMLCanvasElement>();
  private queue: TileId[] = [];
  private readonly flying = new Set<string>();
  private readonly failed = new Set<string>();

  constructor(
    readonly data: RunData,
    readonly layer: number,
    readonly head: number,
    private readonly weights: Palette,
    private readonly arrived: (problem?: unknown) => void,
  ) {}

  get rows(): number {
    return this.data.run.layers[this.layer].q_len;
  }
  get columns(): number {
    return this.data.run.layers[this.layer].kv_len;
  }
  get waiting(): number {
    return this.queue.length + this.flying.size;
  }

  get(id: TileId): HTMLCanvasElement | undefined {
    const name = nameOf(id);
    const found = this.kept.get(name);
    if (found) {
      this.kept.delete(name);
      this.kept.set(name, found);
    }
    return found;
  }

  /** What is wanted now, most wanted first; wishes of before that have not been sent are forgotten. */
  want(ids: TileId[]): void {
    this.queue = ids.filter((id) => !this.kept.has(nameOf(id)) && !this.flying.has(nameOf(id)) && !this.failed.has(nameOf(id)));
    this.send();
  }

  private send(): void {
    while (this.flying.size < 2 && this.queue.length) {
      const id = this.queue.shift() as TileId;
      const name = nameOf(id);
      this.flying.add(name);
      this.fetch(id)
        .then(
          (canvas) => {
            this.kept.set(name, canvas);
            if (this.kept.size > kKept) this.kept.delete(this.kept.keys().next().value as string);
            this.flying.delete(name);
            this.arrived();
          },
          (problem) => {
            this.failed.add(name);
            this.flying.delete(name);
            this.arrived(problem);
          },
        )
        .then(() => this.send());
    }
  }

  private async fetch(id: TileId): Promise<HTMLCanvasElement> {
    const box = boxOf(id, this.rows, this.columns);
    const cells: [number, number] = [Math.ceil((box.bottom - box.top) / 2 ** id.z), Math.ceil((box.right - box.left) / 2 ** id.z)];
    const table = await this.data.map(this.layer, this.head, box, cells);
    const canvas = document.createElement('canvas');
    canvas.width = cells[1];
    canvas.height = cells[0];
    const image = new ImageData(cells[1], cells[0]);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; ++i) {
      const step = stepOf(table.flat(i), 0, 1);
      pixels[i] = step < 0 ? 0 : this.weights.words[step];
    }
    canvas.getContext('2d')!.putImageData(image, 0, 0);
    return canvas;
  }
}
