// What the store shows for a state: never the comparison of an earlier wish, and changes compared with the run before them.
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { kDefaults, type State } from '../src/state';
import { Store } from '../src/store';
import { fakeSource } from './fake_source';

const text = 'The man saw the astronomer with a telescope.';
const second = 'The man saw the astronomer with a moustache.';
const bodies: Record<string, unknown>[] = [];

/** A store on made-up answers; texts with a bar in them are refused. */
function storeOf(): Store {
  const { source } = fakeSource(true, (_, body) => {
    if (body) bodies.push(JSON.parse(body));
    return body.includes('|') ? 'text has no word in it' : '';
  });
  const store = new Store(source);
  store.info = { model: {}, measures: [], examples: [] } as never;
  return store;
}

const shownTexts = (store: Store): (string | undefined)[] => [store.data?.run.text, store.other?.run.text];
const started = async (patch: Partial<State>): Promise<Store> => {
  const store = storeOf();
  await store.update({ text, ...patch });
  return store;
};

beforeEach(() => {
  bodies.length = 0;
  vi.stubGlobal('location', { hash: '' });
  vi.stubGlobal('history', { pushState: () => undefined, replaceState: () => undefined });
});

describe('a comparison', () => {
  it('ends where its second text fails, which is said', async () => {
    const store = await started({ against: 'text', second });
    expect(shownTexts(store)).toEqual([text, second]);
    await store.update({ second: '|' });
    expect(shownTexts(store)).toEqual([text, undefined]);
    expect(store.problem).toEqual({ message: 'The second text: text has no word in it', remedy: 'Write a text with a word in it.' });
    expect(store.isStale).toBe(false);
  });

  it('is not kept for a first text that fails; what is shown is called stale', async () => {
    const store = await started({ zeroed: [[0, 3]], against: 'before' });
    expect(store.other?.run.changed).toEqual({});
    await store.update({ text: '|' });
    expect(shownTexts(store)).toEqual([text, undefined]);
    expect(store.isStale).toBe(true);
    await store.update({ text: second });
    expect(store.isStale).toBe(false);
    expect(shownTexts(store)).toEqual([second, second]);
  });

  it('never stands beside another wish while that one is awaited', async () => {
    const store = await started({ against: 'text', second });
    const seen: (string | undefined)[] = [];
    store.listen(() => store.data?.run.text !== text && seen.push(store.other?.run.text));
    await store.update({ text: 'One two.', second: 'Three four.' });
    expect(new Set(seen)).toEqual(new Set([undefined, 'Three four.']));
  });

  it('of two texts hides words in the first only', async () => {
    await started({ against: 'text', second, hidden: [2], temperature: 2 });
    expect(bodies).toEqual([{ text, hidden: [2], temperature: 2 }, { text: second, temperature: 2 }]);
  });
});

describe('a change', () => {
  it('is compared with the run before, until all of it is taken back', () => {
    const store = storeOf();
    store.state = { ...kDefaults, text };
    store.change({ temperature: 2 });
    expect(store.state.against).toBe('before');
    store.toggle('zeroed', 0, 3);
    store.change({ hidden: [2] });
    store.toggle('zeroed', 0, 3);
    store.change({ temperature: 1 });
    expect(store.state.against).toBe('before');
    store.change({ hidden: [] });
    expect(store.state.against).toBe('');
  });

  it('hides the word of a piece, and zeroes no head that was removed', async () => {
    const store = await started({ unit: 'piece' });
    store.data!.run.queries.pieces[5].word = 4;
    store.toggleHidden(store.wordOf(5));
    expect(store.state.hidden).toEqual([4]);
    expect([4, 5, 6].map(store.isHidden)).toEqual([true, true, false]);
    store.info!.model!.removed = [[1, 2]];
    store.toggle('zeroed', 1, 2);
    store.toggle('mean', 1, 2);
    expect([store.state.zeroed, store.state.mean]).toEqual([[], []]);
  });

  it('leaves a comparison of two texts alone', () => {
    const store = storeOf();
    store.state = { ...kDefaults, text, second, against: 'text' };
    store.toggle('zeroed', 0, 3);
    expect(store.state.against).toBe('text');
    store.toggle('zeroed', 0, 3);
    expect(store.state.against).toBe('text');
  });
});
