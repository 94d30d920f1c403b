// A web server and its client: small and large answers, with connections that are kept and such that are not.
const http = require("node:http");
const [what, host] = process.argv.slice(2);
const port = 9200;

function body(size) {
  return Buffer.alloc(size, "firelane ");
}

function ask(size, agent) {
  return new Promise((resolve, reject) => {
    const request = http.get({ host, port, path: `/${size}`, agent }, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("end", () =>
        Buffer.concat(parts).equals(body(size)) ? resolve() : reject(new Error(`${size}: other bytes`)),
      );
    });
    request.on("error", reject);
  });
}

async function main() {
  if (what === "serve") {
    http.createServer((request, response) => response.end(body(Number(request.url.slice(1))))).listen(port, host);
    return;
  }
  const kept = new http.Agent({ keepAlive: true, maxSockets: 4 });
  for (const agent of [kept, new http.Agent()]) {
    await Promise.all([0, 1, 1000, 100_000, 1_000_000, 5, 6, 7, 8, 9].map((size) => ask(size, agent)));
  }
  kept.destroy();
  console.log("good");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
