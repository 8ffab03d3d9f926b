// The made-up server as the page's source of answers, for unit tests: what was asked is written down. Not live, it holds bytes only, as a
// self-contained file of a long text does.
import type { Run } from '../src/contract';
import { ApiError, type Source } from '../src/source';
import { Table, type Dtype } from '../src/table';
import { respond, type FakeReply } from './fake_microscope';

export interface FakeSource {
  source: Source;
  asked: string[];
}

export function fakeSource(live = true, refuse: (target: string, body: string) => string = () => ''): FakeSource {
  const asked: string[] = [];
  const ask = (method: string, target: string, body = ''): FakeReply => {
    asked.push(target);
    const why = refuse(target, body);
    if (why) throw new ApiError(400, why, 'change the request');
    if (!live && /dtype=f16|\/row\?/.test(target)) throw new ApiError(404, 'This file does not hold that.', '');
    const reply = respond(method, target, body);
    if (reply.status >= 400) throw new ApiError(reply.status, `answered ${reply.status}`, '');
    return reply;
  };
  const source = {
    live,
    json: async (method: string, target: string, body?: unknown) => JSON.parse(new TextDecoder().decode(ask(method, target, body ? JSON.stringify(body) : '').bytes)),
    table: async (target: string) => {
      const reply = ask('GET', target);
      return Table.decode(reply.shape!, reply.dtype as Dtype, reply.bytes);
    },
  };
  return { source: source as unknown as Source, asked };
}

export const runOf = (source: Source, text: string): Promise<Run> => source.json<Run>('POST', '/api/runs', { text });
