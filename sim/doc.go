// Package sim simulates vLLM 0.32 engines with the NIXL connector in pull mode:
// the HTTP surface of chat completions, completions, Anthropic's messages, responses and token ids, paged KV blocks with a
// ledger of who holds and who freed them, and the side channel over which a
// decode engine pulls a prefill engine's blocks. Engines in different processes
// talk to each other as those of one process do.
//
// It is as unforgiving as the real one. A handle used twice, or after its lease, answers wrong text
// with status 200, because nothing checks a read. Blocks that were freed count as overwritten at
// once. Incomplete handles kill or hang the engine. A prefill whose client leaves in its last moments
// strands its blocks. A frozen prefill engine hangs its decode engines.
//
// # Prefix cache
//
// A full block is found again by its tokens, all tokens before it and the request's cache_salt. It is
// lost when it is the least recently used of the blocks without a holder and another block is needed.
// A sequence's last block is given up first. A prompt's last token is never found, because it must be
// computed, or pulled, to have an output. A decode engine pulls only the blocks that it does not
// have. It files what it pulled by the prompt's tokens, so that wrong KV stays wrong for the next
// request. The next turn of a chat finds an answer's full blocks, unless its client left before the
// end. A prompt of which only a part was computed leaves nothing. kv_cache_usage_perc counts what is
// held, including pins.
//
// The cache does not weaken the ledger. A read for a request whose pin has ended gives what no prompt
// has, even from blocks that are cached or pinned for others.
//
// # Load
//
// Prompts are computed one after the other, in the order in which they came. They cost time only for
// tokens that are not cached. A request that queues for that counts as waiting, and so does one that
// waits for a transfer. A prompt is computed in chunks of Options.MaxBatchedTokens. While a chunk is
// computed the running answers get no tokens, and between two chunks they get one. The number of
// running answers makes no step slower. A transfer takes its time however many there are.
//
// An engine with a Profile takes steps instead. A step has a token for each running answer, and the prompts
// that came first, up to max_num_batched_tokens, whole or in part. Its time is that of a decode step of so
// many answers and tokens of context, what the prompts cost above that, and the posts of the transfers that it
// begins. As vLLM schedules ahead, a step is put together when the one before it begins: what comes meanwhile,
// a transfer that has ended too, is in the step after it. Transfers run beside the steps. A prompt counts as
// waiting until it fits in the next step.
//
// Not simulated are preemption (a request takes all the blocks that it will need before it runs),
// structured output, sampling, and routes that xpyd neither serves nor asks. The routes of embeddings,
// scores and audio answer for the same model, at once and without load: Embedding, Similarity and
// Transcript give their answers. /sim/ledger,
// /sim/requests, /sim/fault, /sim/speed, /sim/restart and /sim/reset are for tests of other processes.
//
// # Text
//
// An answer is a function of the prompt alone: Text and ChoiceText give it,
// ChatPrompt renders messages to the prompt they stand for. Four bytes are a
// token. Without max_tokens a chat answer ends by itself after 64 tokens. A
// marker in the prompt chooses a style of text:
//
//	[[text:done]]      every third token is a look-alike of the [DONE] event
//	[[text:finish]]    every third token is a look-alike of a finish_reason
//	[[text:big]]       the second token has 200 KiB
//	[[text:empty]]     every other token is "", beside the words
//	[[text:utf8]]      every other token is "", and the next has characters of 2, 3 and 4 bytes
//	[[text:escape]]    every other token is full of characters that JSON escapes
//	[[text:crlf]]      events end with CRLF CRLF
//	[[text:comments]]  a comment line comes before each event
//	[[text:eos@N]]     the answer ends by itself, with "stop", after N tokens
//	[[text:tool]]      with tool_choice "auto" and Options.ToolCallParser, a tool is called
//
// # Tools
//
// With Options.ToolCallParser an answer is a tool call if tool_choice forces one. Of several functions
// the prompt picks one. The arguments are the required properties of its schema, each string three
// words of Text. The model says the call as Hermes models do, and the API shows what vLLM's parser
// makes of it: a streamed name in one event and the arguments in many, and none for the tags around
// them. finish_reason is "tool_calls", or "stop" if tool_choice names the function. If the token limit
// cuts the call short, it is plain content, as in a prefill engine's answer of one token. Messages and
// responses call functions in the same way, in their own shapes. Without the option such chats and
// messages are refused, as by engines without a parser, and a response is text.
//
// # Faults
//
// [[P:FAULT]] in a prompt hits the request on its prefill leg, [[D:FAULT]] on
// any other leg, [[NAME:FAULT]] on the engine of that name. Engine.SetFault and
// POST /sim/fault make one engine misbehave on every request, or the next Count.
// Event numbers count from 0, the chat's role event and [DONE] included; :rst
// after a fault that breaks a connection off makes it a RST in place of a FIN.
//
//	refuse           the HTTP port is closed until the fault is cleared (engine-wide only)
//	rst, fin         breaks off before the answer's head
//	hang             never answers
//	delay=200ms      waits before it looks at the request
//	status=503       answers that status and an error body; no work is done
//	kill, kill@K     the engine dies at once, or in place of event K
//	truncate@N       announces the whole answer and breaks off after N bytes (not streamed)
//	badjson          the first half of the answer, well framed (not streamed)
//	nohandle         kv_transfer_params is null and nothing stays pinned
//	badhandle=WHAT   spoils the handle: null, empty, port (a string), port-zero, port-high,
//	                 port-closed, no-port, no-host, host-empty, host-null, no-engine, engine (foreign),
//	                 no-id, id (unknown), no-blocks, null-blocks, empty-blocks, empty-group,
//	                 few-blocks, few-tokens, flat-blocks, string-blocks, range-blocks, no-flag, flag-false
//	cached=N         reports N cached_tokens
//	zero             200 and nothing but [DONE]
//	kvfail           the KV does not come: 500, or the role event, an error event and [DONE]
//	error-first      an error event, then [DONE], nothing before
//	error-done@K     an error event in place of event K, then [DONE]
//	error-cut@K      an error event in place of event K, then breaks off
//	die@K            breaks off in place of event K, at an event's border
//	cut@K            breaks off in the middle of event K
//	stall@K          says nothing more in place of event K
//	no-done          ends the body cleanly without [DONE]
//	no-finish        finish_reason stays null
//	slice@N          writes each event, or the answer's body, in pieces of N bytes
//	late             writes a second, unasked answer after the first
//	drip=N,D         as slice, with a pause of D between two pieces
//	role-error       the role event, an error event and [DONE]; a completion has no role event
//	corrupt@K        event K, or the whole answer's body, ends with ")", which is no JSON
//	slow-accept=D    a connection is served only D after it came (engine-wide only)
//	random=SHARE,SEED
//	                 that share of the requests draws a fault of the table, by seed (engine-wide only);
//	                 never kill, nor a handle that kills its reader, because a restart is up to the caller
//
// On an answer that is not streamed die and cut break off before the head,
// stall hangs, and the error kinds and zero answer 500.
package sim
