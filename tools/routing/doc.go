// Package routing measures how well requests are spread over prefill and decode engines:
// share of the prompts that caches save, TTFT, tokens/s, imbalance.
//
// Engines are simulated, with prefix caches and a limit of KV blocks, and all waiting is
// done by their clocks, so that a small machine will do. Requests come at times that are
// fixed beforehand (open loop), the same for all contenders; each contender gets engines
// and a proxy of its own, started afresh with empty caches. An oracle, which knows the
// engines' caches exactly, routes the same requests on paper.
package routing
