// How the page is built: one index.html with everything inside, nothing loaded from elsewhere. `npm run dev` serves it with the made-up
// answers of tests/fake_microscope.ts, or, where MHA_SERVER names one ("http://127.0.0.1:8642"), those of a real server.
import { defineConfig, type Plugin } from 'vite';
import { viteSingleFile } from 'vite-plugin-singlefile';
import { notices } from './notices';

function fakeMicroscope(): Plugin {
  return {
    name: 'fake-microscope',
    configureServer(server) {
      server.middlewares.use(async (request, response, next) => {
        if (!request.url?.startsWith('/api/')) return next();
        const fake = await server.ssrLoadModule('/tests/fake_microscope.ts');
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk as Buffer);
        const reply = fake.respond(request.method ?? 'GET', request.url, Buffer.concat(chunks).toString());
        response.writeHead(reply.status, {
          'Content-Type': reply.type,
          ...(reply.shape ? { 'X-Mha-Shape': reply.shape.join(','), 'X-Mha-Dtype': reply.dtype } : {}),
        });
        response.end(Buffer.from(reply.bytes));
      });
    },
  };
}

const real = process.env.MHA_SERVER;

export default defineConfig({
  plugins: [notices(), viteSingleFile(), ...(real ? [] : [fakeMicroscope()])],
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  server: real ? { proxy: { '/api': real } } : {},
  build: { target: 'es2020', assetsInlineLimit: Infinity, reportCompressedSize: false },
  test: { include: ['tests/**/*.test.ts'], environment: 'node' },
} as Parameters<typeof defineConfig>[0]);
