// Package routing measures how well requests are spread over prefill and decode engines:
// share of the prompts that caches save, TTFT, tokens/s, imbalance.
//
// Engines are simulated, with prefix caches and a limit of KV blocks. Their clocks do all the
// waiting, so that a small machine is enough. Requests come at times that are fixed beforehand
// (open loop) and the same for all contenders. Each contender gets engines and a proxy of its own,
// started with empty caches. An oracle, which knows the engines' caches exactly, routes the same
// requests on paper.
package routing
