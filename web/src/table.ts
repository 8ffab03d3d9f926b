// Tables of numbers as they come over the wire: u8, f16 or f32, dense and row-major, with their shape. The one place that decodes them;
// NaN stands for a cell nobody may see.

export type Dtype = 'u8' | 'f16' | 'f32';

const kHalf = buildHalves();

/** All 65,536 half-precision numbers, so that decoding one is a look-up. */
function buildHalves(): Float32Array {
  const out = new Float32Array(65536);
  for (let bits = 0; bits < 65536; ++bits) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 31) out[bits] = fraction ? NaN : sign * Infinity;
    else if (exponent === 0) out[bits] = sign * fraction * 2 ** -24;
    else out[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return out;
}

export class Table {
  readonly strides: number[];
  private constructor(
    readonly shape: number[],
    readonly dtype: Dtype,
    readonly raw: Uint8Array | Uint16Array | Float32Array,
  ) {
    this.strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((product, n) => product * n, 1));
  }

  /** The table of bytes from a reply; throws where the bytes are not as many as the shape says. */
  static decode(shape: number[], dtype: Dtype, bytes: Uint8Array): Table {
    const count = shape.reduce((product, n) => product * n, 1);
    const size = { u8: 1, f16: 2, f32: 4 }[dtype];
    if (size === undefined || bytes.length !== count * size) {
      throw new Error(`a table of shape ${shape.join(' x ')} as ${dtype} has ${bytes.length} bytes`);
    }
    if (dtype === 'u8') return new Table(shape, dtype, bytes);
    const aligned = bytes.slice().buffer;
    return new Table(shape, dtype, dtype === 'f16' ? new Uint16Array(aligned) : new Float32Array(aligned));
  }

  static of(shape: number[], values: Float32Array): Table {
    return new Table(shape, 'f32', values);
  }

  /** The number at a flat place. */
  flat(i: number): number {
    if (this.dtype === 'u8') return this.raw[i] / 255;
    return this.dtype === 'f16' ? kHalf[this.raw[i]] : this.raw[i];
  }

  at(...index: number[]): number {
    let flat = 0;
    for (let axis = 0; axis < index.length; ++axis) flat += index[axis] * this.strides[axis];
    return this.flat(flat);
  }

  /** One head's numbers of [heads, rows, columns], decoded. */
  matrix(head: number): Matrix {
    const [, rows, columns] = this.shape;
    const out = new Float32Array(rows * columns);
    const from = head * rows * columns;
    for (let i = 0; i < out.length; ++i) out[i] = this.flat(from + i);
    return { rows, columns, values: out };
  }
}

/** One head's decoded table: values[row * columns + column], NaN where nobody may look. */
export interface Matrix {
  rows: number;
  columns: number;
  values: Float32Array;
  /** Out of bytes: in steps of 1/255, for colours and not for figures. */
  coarse?: boolean;
}
