import { describe, expect, it } from 'vitest';
import { Table } from '../src/table';

describe('Table', () => {
  it('decodes halves: one, a third, the smallest, the largest, NaN', () => {
    const table = Table.decode([1, 1, 6], 'f16', new Uint8Array(Uint16Array.from([0x3c00, 0x3555, 0x0001, 0x7bff, 0x7e00, 0xc000]).buffer));
    const values = Array.from({ length: 6 }, (_, i) => table.flat(i));
    expect(values[0]).toBe(1);
    expect(values[1]).toBeCloseTo(1 / 3, 3);
    expect(values[2]).toBe(2 ** -24);
    expect(values[3]).toBe(65504);
    expect(values[4]).toBeNaN();
    expect(values[5]).toBe(-2);
  });

  it('finds a cell by head, row and column, and a head as a matrix', () => {
    const table = Table.decode([2, 2, 3], 'u8', Uint8Array.from({ length: 12 }, (_, i) => i * 20));
    expect(table.at(1, 0, 2)).toBeCloseTo(160 / 255);
    const { rows, columns, values } = table.matrix(1);
    expect([rows, columns]).toEqual([2, 3]);
    expect(values[3]).toBeCloseTo(180 / 255);
  });

  it('reads f32 from bytes at an odd place', () => {
    const bytes = new Uint8Array(9);
    bytes.set(new Uint8Array(Float32Array.from([0.5, -2]).buffer), 1);
    expect(Table.decode([2], 'f32', bytes.subarray(1)).flat(1)).toBe(-2);
  });

  it('refuses bytes that are not as many as the shape says', () => {
    expect(() => Table.decode([2, 2], 'u8', new Uint8Array(3))).toThrow('2 x 2');
    expect(() => Table.decode([1], 'f64' as never, new Uint8Array(8))).toThrow();
  });
});
