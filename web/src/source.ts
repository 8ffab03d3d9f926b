// Where answers come from: the server, or the recorded ones in a self-contained file. The rest of the page does not know which; it may
// ask `live` to hide what only a server can do.
import { Table, type Dtype } from './table';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly remedy: string,
  ) {
    super(message);
  }
}

interface Reply {
  status: number;
  shape: string | null;
  dtype: string | null;
  bytes: Uint8Array;
}

interface Recorded {
  type: string;
  shape: number[] | string | null;
  dtype: string | null;
  body: string;
}

export interface Snapshot {
  responses: Record<string, Recorded>;
  state: string;
}

const kTurns = 8;
const kPause = 1000;

type Carrier = (method: string, target: string, body: string | undefined, signal?: AbortSignal) => Promise<Reply>;

/** Asks the server of this page. */
const network: Carrier = async (method, target, body, signal) => {
  let reply: Response;
  try {
    const headers = body === undefined ? undefined : { 'Content-Type': 'application/json' };
    reply = await fetch(target, { method, body, headers, signal });
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw new ApiError(0, 'The server does not answer.', 'Is `mha serve` still running? Start it again, then reload this page.');
  }
  return {
    status: reply.status,
    shape: reply.headers.get('X-Mha-Shape'),
    dtype: reply.headers.get('X-Mha-Dtype'),
    bytes: new Uint8Array(await reply.arrayBuffer()),
  };
};

/** Answers from what a self-contained file holds. */
function recorded(snapshot: Snapshot): Carrier {
  return async (method, target) => {
    const found = snapshot.responses[`${method} ${target}`];
    if (!found) throw new ApiError(404, 'This file does not hold that.', 'Run `mha serve` to see everything.');
    const bytes = Uint8Array.from(atob(found.body), (letter) => letter.charCodeAt(0));
    return { status: 200, shape: found.shape === null ? null : String(found.shape), dtype: found.dtype, bytes };
  };
}

export class Source {
  /** Bytes of all answers so far: the budgets' script reads it. */
  received = 0;
  private constructor(
    private readonly carry: Carrier,
    readonly live: boolean,
    readonly state: string,
    private readonly targets: string[] = [],
  ) {}

  /** Of the page at hand: the snapshot where there is one, else the server. */
  static ofPage(): Source {
    const element = document.getElementById('mha-snapshot');
    if (!element) return new Source(network, true, '');
    const snapshot = JSON.parse(element.textContent ?? '') as Snapshot;
    return Source.ofSnapshot(snapshot);
  }

  static ofSnapshot(snapshot: Snapshot): Source {
    return new Source(recorded(snapshot), false, snapshot.state ?? '', Object.keys(snapshot.responses));
  }

  /** Whether this can be asked for: of a server everything, of a file what it recorded. */
  holds(target: string): boolean {
    return this.live || this.targets.includes(`GET ${target}`);
  }

  /** The target of the one run that a self-contained file holds. */
  onlyRun(): string {
    const found = this.targets.find((target) => /^GET \/api\/runs\/[^/?]+$/.test(target));
    if (!found) throw new ApiError(404, 'This file holds no run.', 'Save it again from `mha serve`.');
    return found.slice('GET '.length);
  }

  async json<T>(method: string, target: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    const reply = await this.ask(method, target, body === undefined ? undefined : JSON.stringify(body), signal);
    return JSON.parse(new TextDecoder().decode(reply.bytes)) as T;
  }

  async table(target: string, signal?: AbortSignal): Promise<Table> {
    const reply = await this.ask('GET', target, undefined, signal);
    if (!reply.shape || !reply.dtype) throw new ApiError(reply.status, `${target} came without a shape`, 'Reload the page.');
    return Table.decode(reply.shape.split(',').map(Number), reply.dtype as Dtype, reply.bytes);
  }

  private async ask(method: string, target: string, body?: string, signal?: AbortSignal): Promise<Reply> {
    let reply = await this.carry(method, target, body, signal);
    // Others are being served: a little later, then.
    for (let turn = 0; reply.status === 429 && turn < kTurns; ++turn) {
      await new Promise((resume) => setTimeout(resume, kPause));
      reply = await this.carry(method, target, body, signal);
    }
    this.received += reply.bytes.length;
    if (reply.status < 400) return reply;
    let told: { error?: string; remedy?: string } = {};
    try {
      told = JSON.parse(new TextDecoder().decode(reply.bytes));
    } catch {
      // An answer that is not of our server: its status is all there is to say.
    }
    throw new ApiError(reply.status, told.error ?? `The server answered ${reply.status}.`, told.remedy ?? 'Reload the page.');
  }
}
