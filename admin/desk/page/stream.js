// Unauthorized says that the port wants a token, or another one.
export class Unauthorized extends Error {}

// silence is how long a stream may say nothing before it counts as lost, in ms. There is an event a second.
const silence = 10_000;

const tokenKey = 'xpyd-admin-token'; // in the storage of this tab

export const token = () => sessionStorage.getItem(tokenKey);
export const setToken = (value) => sessionStorage.setItem(tokenKey, value);

// authorization is the head of a request with the token, if there is one.
export const authorization = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

// follow reads the server-sent events of url and gives each to on(name, data). It returns when the
// server ends the stream. fetch can send a bearer token, which EventSource cannot.
export async function follow(url, on) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), silence);
  try {
    const response = await fetch(url, { headers: authorization(), cache: 'no-store', signal: stop.signal });
    if (response.status === 401) throw new Unauthorized();
    if (!response.ok) throw new Error(`${url}: status ${response.status}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), silence);
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) deliver(event, on);
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

// deliver reads one event of the form "event: NAME\ndata: JSON".
function deliver(event, on) {
  const [name, data] = event.split('\n');
  on(name.slice('event: '.length), JSON.parse(data.slice('data: '.length)));
}
