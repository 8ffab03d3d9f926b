// One run and what is known of it so far: tables of weights per layer, measures, rows, effects. Each is asked for once; what is there is
// read without waiting, which is why hovering never fetches. Knows nothing of the page's state.
import { unitsOf, type Head, type Layer, type Run, type UnitKind, type UnitLabel } from './contract';
import { hideMasked } from './matrix_math';
import type { Source } from './source';
import type { Matrix, Table } from './table';

/** Tables of a layer up to this many cells are fetched whole; beyond it a head is a map of tiles. */
export const kWholeCells = 1 << 24;
/** Up to here in f16 (three digits, hidden cells told apart), beyond in u8. */
const kExactCells = 1 << 19;

export type Values = Record<string, (number | null)[][]>;

/** On very long texts measures are of an even choice of rows. */
export interface RowsRead {
  read: number;
  of: number;
}

export class RunData {
  private readonly tables = new Map<string, Table>();
  private readonly waiting = new Map<string, Promise<unknown>>();
  private readonly matrices = new Map<string, Matrix>();
  private readonly rows = new Map<string, Table>();
  measures: Values | null = null;
  rowsRead: RowsRead | null = null;
  effects: Values | null = null;
  effectsBy: 'zero' | 'mean' = 'zero';

  constructor(
    readonly source: Source,
    readonly run: Run,
  ) {}

  get heads(): number {
    return Math.max(1, ...this.run.layers.map((layer) => layer.heads));
  }

  get self(): boolean {
    return this.run.keys === null;
  }

  queries(unit: UnitKind): UnitLabel[] {
    return unitsOf(this.run.queries, unit);
  }

  keys(unit: UnitKind): UnitLabel[] {
    return unitsOf(this.run.keys ?? this.run.queries, unit);
  }

  /** Whether a layer's tables are too many cells to be sent whole. */
  isLong(unit: UnitKind, layer: Layer = this.run.layers[0]): boolean {
    return layer.heads * this.queries(unit).length * this.keys(unit).length > kWholeCells;
  }

  private path(rest: string): string {
    return `/api/runs/${this.run.run}/${rest}`;
  }

  /** One answer, asked for once at a time; failing leaves it to be asked again. */
  private once<T>(key: string, ask: () => Promise<T>): Promise<T> {
    const known = this.waiting.get(key);
    if (known) return known as Promise<T>;
    const promise = ask().catch((problem) => {
      this.waiting.delete(key);
      throw problem;
    });
    this.waiting.set(key, promise);
    return promise;
  }

  weights(layer: number, unit: UnitKind): Table | undefined {
    return this.tables.get(`${layer} ${unit} u8 weight`);
  }

  loadWeights(layer: number, unit: UnitKind): Promise<Table> {
    return this.loadTable(layer, unit, 'u8', 'weight');
  }

  private loadTable(layer: number, unit: UnitKind, dtype: string, kind: string): Promise<Table> {
    const key = `${layer} ${unit} ${dtype} ${kind}`;
    return this.once(key, async () => {
      const table = await this.source.table(this.path(`weights?layer=${layer}&unit=${unit}&dtype=${dtype}&kind=${kind}`));
      this.tables.set(key, table);
      return table;
    });
  }

  /** One head's numbers, hidden cells NaN: in f16 where they are to be read or kept (`exact`) or few; else as bytes, which colours need. */
  async matrix(layer: number, head: number, unit: UnitKind, kind: 'weight' | 'norm', exact = false): Promise<Matrix> {
    const about = this.run.layers[layer];
    const cells = about.heads * this.queries(unit).length * this.keys(unit).length;
    const fine = exact || kind === 'norm' || cells <= kExactCells;
    const key = `${layer} ${head} ${unit} ${kind} ${fine}`;
    const known = this.matrices.get(key);
    if (known) return known;
    let table: Table;
    try {
      table = await this.loadTable(layer, unit, fine ? 'f16' : 'u8', kind);
    } catch (problem) {
      if (!fine || kind === 'norm' || this.source.live) throw problem;
      table = await this.loadTable(layer, unit, 'u8', kind);  // all that a self-contained file of a long text holds
    }
    const matrix = { ...table.matrix(head), coarse: table.dtype === 'u8' };
    if (matrix.coarse) hideMasked(matrix, about, this.run.queries, this.run.keys ?? this.run.queries, unit);
    if (this.matrices.size > 64) this.matrices.clear();
    this.matrices.set(key, matrix);
    return matrix;
  }

  /** To whom unit `index` attends and who attends to it, in all heads: what stands in for tables that are too long to be sent. */
  loadRow(unit: UnitKind, index: number): Promise<Table> {
    const key = `${unit} ${index}`;
    return this.once(`row ${key}`, async () => {
      const table = await this.source.table(this.path(`row?unit=${unit}&index=${index}&kind=weight`));
      this.rows.set(key, table);
      return table;
    });
  }

  /** One weight, from whatever is there; NaN where nothing is. */
  weightAt(unit: UnitKind, [layer, head]: Head, from: number, to: number): number {
    if (from < 0 || to < 0) return NaN;
    const table = this.weights(layer, unit);
    if (table) return table.at(head, from, to);
    const index = this.headIndex(layer, head);
    const row = this.rows.get(`${unit} ${from}`);
    if (row) return row.at(index, 0, to);
    return this.rows.get(`${unit} ${to}`)?.at(index, 1, from) ?? NaN;
  }

  /** One weight in half precision; undefined where only bytes are there, or nothing. */
  exactAt(unit: UnitKind, [layer, head]: Head, from: number, to: number): number | undefined {
    const table = this.tables.get(`${layer} ${unit} f16 weight`);
    if (table) return table.at(head, from, to);
    const index = this.headIndex(layer, head);
    return this.rows.get(`${unit} ${from}`)?.at(index, 0, to) ?? this.rows.get(`${unit} ${to}`)?.at(index, 1, from);
  }

  /** What exactAt needs of a unit: its row, or, in a file that holds none, the tables in halves as far as it has them. */
  async loadExact(unit: UnitKind, index: number): Promise<void> {
    if (this.source.live) return void (await this.loadRow(unit, index));
    await Promise.all(this.run.layers.map((_, layer) => this.loadTable(layer, unit, 'f16', 'weight').catch(() => null)));
  }

  /** A unit's row (0) or column (1) in one head as steps of a palette, where its row was asked for. */
  rowSteps(unit: UnitKind, [layer, head]: Head, index: number, which: 0 | 1): Uint8Array | null {
    const row = this.rows.get(`${unit} ${index}`);
    if (!row) return null;
    const at = this.headIndex(layer, head);
    return Uint8Array.from({ length: row.shape[2] }, (_, j) => Math.round(255 * (row.at(at, which, j) || 0)));
  }

  /** A head's place in the list of all, by layer, then head. */
  private headIndex(layer: number, head: number): number {
    return this.run.layers.slice(0, layer).reduce((sum, one) => sum + one.heads, head);
  }

  loadMeasures(unit: UnitKind): Promise<Values> {
    return this.once(`measures ${unit}`, async () => {
      const answer = await this.source.json<{ values: Values; rows?: RowsRead }>('GET', this.path(`measures?unit=${unit}`));
      this.measures = answer.values;
      this.rowsRead = answer.rows && answer.rows.read < answer.rows.of ? answer.rows : null;
      return answer.values;
    });
  }

  /** Whether effects can be had: running the model without each head takes a server, unless they were recorded. */
  get hasEffects(): boolean {
    return this.source.holds(this.path('effects?by=zero'));
  }

  loadEffects(by: 'zero' | 'mean', signal: AbortSignal): Promise<Values> {
    return this.once(`effects ${by}`, async () => {
      const answer = await this.source.json<{ values: (number | null)[][] }>('GET', this.path(`effects?by=${by}`), undefined, signal);
      this.effects = { effect: answer.values };
      this.effectsBy = by;
      return this.effects;
    });
  }

  links(layer: number, head: number, unit: UnitKind, top: number): Promise<{ links: [number, number, number][] }> {
    const target = this.path(`links?layer=${layer}&head=${head}&top=${top}&unit=${unit}`);
    return this.once(target, () => this.source.json('GET', target));
  }

  /** A pooled rectangle of a head's table by pieces. */
  map(layer: number, head: number, box: { top: number; bottom: number; left: number; right: number }, cells: [number, number]): Promise<Table> {
    const range = `queries=${box.top}:${box.bottom}&keys=${box.left}:${box.right}&rows=${cells[0]}&columns=${cells[1]}`;
    return this.source.table(this.path(`map?layer=${layer}&head=${head}&${range}&pool=max`));
  }

  /** Where the server writes this run's self-contained file. */
  pageFile(state: string): string {
    return this.path(`page.html?state=${encodeURIComponent(state)}`);
  }
}
