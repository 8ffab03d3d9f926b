// The current state, what is loaded for it, and the way from one to the other: a change of state writes the address, asks for what is
// missing and tells the listeners. Hovering is apart from all that: it only draws.
import { changeOf, decodeState, encodeState, kDefaults, type State } from './state';
import type { Change, Head, Info, Run } from './contract';
import { ApiError, Source } from './source';
import { showReading } from './reading';
import { RunData } from './run_data';

/** A value that is told to whoever listens; for what changes with every move of the pointer. */
export class Signal<T> {
  private readonly listeners = new Set<(value: T) => void>();
  constructor(public value: T) {}
  set(value: T): void {
    if (value === this.value) return;
    this.value = value;
    for (const listener of this.listeners) listener(value);
  }
  listen(listener: (value: T) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** What the pointer or the focus is on: a query, a key, or one cell of a head's table. */
export interface Hover {
  query: number;
  key: number;
}
export const kNowhere: Hover = { query: -1, key: -1 };

/** A frame without an address of its own (about:srcdoc, in a notebook) keeps its state to itself. */
function intoAddress(hash: string, how: 'push' | 'replace'): void {
  try {
    if (how === 'push') history.pushState(null, '', hash);
    else history.replaceState(null, '', hash);
  } catch (problem) {
    if (!(problem instanceof DOMException)) throw problem;
  }
}

/** A run that is asked for. */
interface Wish {
  text: string;
  changed: Change | undefined;
  tensors: string;
}

const runWish = (state: State): Wish => ({ text: state.text, changed: changeOf(state), tensors: state.tensors });
const keyOf = (wish: Wish | null): string => (wish ? JSON.stringify([wish.text, wish.changed, wish.tensors]) : '');

/** What to do, said of the page where the server can only speak of a request. */
function remedyOf(problem: ApiError): string {
  if (/no word in it/.test(problem.message)) return 'Write a text with a word in it.';
  return problem.remedy === 'change the request' ? 'Change the text or what is asked of it.' : problem.remedy;
}

export class Store {
  state: State = kDefaults;
  info: Info | null = null;
  data: RunData | null = null;
  /** What is compared with: the run before the change, or the second text's. */
  other: RunData | null = null;
  problem: { message: string; remedy: string } | null = null;
  busy = false;
  /** Counts what arrived, so that canvases know when to draw anew. */
  version = 0;
  readonly hover = new Signal<Hover>(kNowhere);
  private readonly listeners = new Set<() => void>();
  private readonly runs = new Map<string, RunData>();
  private asking = 0;
  /** The wishes that `data` and `other` answer. */
  private dataKey = '';
  private otherKey = '';

  constructor(readonly source: Source) {}

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(): void {
    ++this.version;
    for (const listener of this.listeners) listener();
  }

  /** The unit whose row is shown: under the pointer, else pinned; -1 = none. */
  get active(): number {
    const { query } = this.hover.value;
    return query >= 0 ? query : this.state.pin;
  }

  async start(): Promise<void> {
    addEventListener('popstate', () => void this.adopt(decodeState(location.hash)));
    await this.guarded(async () => {
      this.info = await this.source.json<Info>('GET', '/api/info');
    });
    if (!this.info) return this.tell();
    const hash = location.hash || this.source.state;
    const state = decodeState(hash);
    if (!state.text && !state.tensors) this.fillIn(state);
    await this.adopt(state);
    const example = this.info.examples[0];
    if (!hash && this.info.model && example) await showReading(this, example, 0, 'replace');
  }

  private fillIn(state: State): void {
    const example = this.info?.examples[0];
    if (this.info?.model && example) state.text = example.text;
    else if (this.info?.tensors?.runs.length) state.tensors = this.info.tensors.runs[0].run;
  }

  /** Changes the state. 'push' makes a step that the Back button undoes; 'replace' does not. */
  update(patch: Partial<State>, how: 'push' | 'replace' = 'push'): Promise<void> {
    const next = { ...this.state, ...patch };
    const hash = `#${encodeState(next)}`;
    if (hash !== location.hash) intoAddress(hash, how);
    return this.adopt(next);
  }

  private async adopt(next: State): Promise<void> {
    this.state = next;
    this.hover.set(kNowhere);
    this.tell();
    await this.load();
  }

  /** Gets what the state needs and is not there; a newer state's loading ends an older one's. */
  private async load(): Promise<void> {
    const turn = ++this.asking;
    const current = (): boolean => turn === this.asking;
    const wanted = this.state;
    this.busy = true;
    const work = async (): Promise<void> => {
      const data = await this.runOf(runWish(wanted));
      if (!current()) return;
      this.data = data;
      this.dataKey = keyOf(runWish(wanted));
      const wish = this.otherWish(wanted);
      if (keyOf(wish) !== this.otherKey) this.forgetOther();
      this.settle();
      this.problem = null;
      this.tell();
      const other = wish && (await this.otherRun(wish, wanted.against));
      if (!current()) return;
      this.other = other;
      this.otherKey = keyOf(wish);
      this.tell();
      await this.loadTables(current);
    };
    if (!(await this.guarded(() => this.again(work), current)) && current() && this.otherKey !== keyOf(this.otherWish(wanted))) this.forgetOther();
    if (current()) {
      this.busy = false;
      this.tell();
    }
  }

  /** What is to be compared with; null = nothing. Hidden words are of the first text: in the second, other words stand at their places. */
  private otherWish(state: State): Wish | null {
    if (state.tensors || !this.source.live) return null;  // a self-contained file holds one run
    if (state.against === 'text' && state.second) return { text: state.second, changed: changeOf({ ...state, hidden: [] }), tensors: '' };
    if (state.against === 'before' && changeOf(state)) return { text: state.text, changed: undefined, tensors: '' };
    return null;
  }

  private async otherRun(wish: Wish, against: State['against']): Promise<RunData> {
    try {
      return await this.runOf(wish);
    } catch (problem) {
      if (against !== 'text' || !(problem instanceof ApiError)) throw problem;
      throw new ApiError(problem.status, `The second text: ${problem.message}`, problem.remedy);
    }
  }

  private forgetOther(): void {
    this.other = null;
    this.otherKey = '';
  }

  /** Whether what is shown is still that of an earlier wish, the newest having failed. */
  get isStale(): boolean {
    return !this.busy && this.data !== null && this.dataKey !== keyOf(runWish(this.state));
  }

  /** Tables of the selected layer first, then the measures, then the other layers; of both runs. */
  private async loadTables(current: () => boolean): Promise<void> {
    const { unit, layer } = this.state;
    const runs = [this.data, this.other].filter((run): run is RunData => run !== null);
    for (const run of runs) {
      if (!run.isLong(unit, run.run.layers[layer])) await run.loadWeights(layer, unit);
      if (!current()) return;
      this.tell();
    }
    await this.loadRows(current);
    for (const run of runs) {
      await run.loadMeasures(unit).catch(() => null);
      if (!current()) return;
      this.tell();
    }
    for (let l = 0; l < this.data!.run.layers.length; ++l) {
      for (const run of runs) {
        if (run.isLong(unit, run.run.layers[l]) || run.weights(l, unit)) continue;
        await run.loadWeights(l, unit);
        if (!current()) return;
        this.tell();
      }
    }
  }

  /** Rows of the units that were chosen: the finder's, whose small weights bytes do not tell apart; all where tables are too long to be sent. */
  private async loadRows(current: () => boolean): Promise<void> {
    const { unit, layer, pin, a, b, panel } = this.state;
    const data = this.data!;
    if (!data.self) return;
    const pinned = data.isLong(unit, data.run.layers[layer]) ? [pin] : [];
    for (const index of new Set(panel === 'find' && b >= 0 ? [...pinned, a, b] : pinned)) {
      if (index < 0) continue;
      await data.loadExact(unit, index);
      if (!current()) return;
      this.tell();
    }
  }

  /** A run, computed or kept. */
  private async runOf(wish: Wish): Promise<RunData> {
    const { text, changed, tensors } = wish;
    const key = keyOf(wish);
    const known = this.runs.get(key);
    if (known) return known;
    const run = tensors
      ? await this.source.json<Run>('GET', `/api/runs/${tensors}`)
      : this.source.live
        ? await this.source.json<Run>('POST', '/api/runs', { text, ...changed })
        : await this.recordedRun();
    const data = new RunData(this.source, run);
    if (this.runs.size > 8) this.runs.delete(this.runs.keys().next().value as string);
    this.runs.set(key, data);
    return data;
  }

  /** The one run that a self-contained file holds. */
  private recordedRun(): Promise<Run> {
    return this.source.json<Run>('GET', this.source.onlyRun());
  }

  /** Brings indices that the run does not have back into it. */
  private settle(): void {
    const run = this.data!.run;
    const state = { ...this.state };
    state.layer = Math.min(state.layer, run.layers.length - 1);
    state.head = Math.min(state.head, run.layers[state.layer].heads - 1);
    const queries = this.data!.queries(state.unit).length;
    const keys = this.data!.keys(state.unit).length;
    if (state.pin >= queries) state.pin = -1;
    if (state.a >= queries) state.a = -1;
    if (state.b >= keys) state.b = -1;
    if (state.c >= keys) state.c = -1;
    this.state = state;
  }

  /** The server keeps some runs only: one that it has let go is asked for again, once. */
  private async again<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (problem) {
      if (!(problem instanceof ApiError) || problem.status !== 404 || !this.source.live || !this.data) throw problem;
      this.runs.clear();
      return work();
    }
  }

  /** Whether the work was done; what went wrong is reported. */
  private async guarded(work: () => Promise<void>, current: () => boolean = () => true): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (problem) {
      if (current()) this.report(problem);
      return false;
    }
  }

  report(problem: unknown): void {
    if (problem instanceof ApiError) this.problem = { message: problem.message, remedy: remedyOf(problem) };
    else this.problem = { message: problem instanceof Error ? problem.message : String(problem), remedy: 'Reload the page.' };
    this.tell();
  }

  /** How layers and heads are called: counted from 0, or from 1 where that was chosen. */
  headName([layer, head]: Head): string {
    const first = this.state.one ? 1 : 0;
    return `L${layer + first} H${head + first}`;
  }

  /** Whether there is a model to run again, with changes. */
  get canChange(): boolean {
    return this.source.live && this.info?.model != null && !this.state.tensors;
  }

  isZeroed = (layer: number, head: number): boolean => this.state.zeroed.some(([l, h]) => l === layer && h === head);
  isMean = (layer: number, head: number): boolean => this.state.mean.some(([l, h]) => l === layer && h === head);

  isRemoved = (layer: number, head: number): boolean =>
    !this.state.tensors && (this.info?.model?.removed?.some(([l, h]) => l === layer && h === head) ?? false);

  /** Zeroes a head, or gives it back; one that the model no longer has can be neither. */
  toggle(which: 'zeroed' | 'mean', layer: number, head: number): void {
    if (this.isRemoved(layer, head)) return;
    const others = (heads: Head[]): Head[] => heads.filter(([l, h]) => l !== layer || h !== head);
    const was = which === 'zeroed' ? this.isZeroed(layer, head) : this.isMean(layer, head);
    const patch: Partial<State> = { zeroed: others(this.state.zeroed), mean: others(this.state.mean) };
    if (!was) patch[which] = [...(patch[which] as Head[]), [layer, head]];
    this.change(patch);
  }

  /** The word that a unit of the text is or belongs to; -1 = none. */
  wordOf(unit: number): number {
    if (unit < 0 || !this.data || this.state.tensors) return -1;
    return this.state.unit === 'word' ? unit : (this.data.run.queries.pieces[unit]?.word ?? -1);
  }

  isHidden = (unit: number): boolean => this.state.hidden.length > 0 && this.state.hidden.includes(this.wordOf(unit));

  /** Hides a word from all that attend, or shows it again. */
  toggleHidden(word: number): void {
    const { hidden } = this.state;
    this.change({ hidden: hidden.includes(word) ? hidden.filter((i) => i !== word) : [...hidden, word] });
  }

  /** Changes what the run changes and shows what moved; a comparison of two texts stays one. */
  change(patch: Partial<State>): void {
    const { against } = this.state;
    const changed = changeOf({ ...this.state, ...patch }) !== undefined;
    void this.update({ ...patch, against: against === 'text' ? against : changed ? 'before' : '' });
  }
}
