// Package kvevents listens to the events by which engines say which KV blocks they have stored and removed, and corrects
// with them what the router believes to be in the engines' caches. No request waits for it, and none needs it.
//
// Engines name blocks by hashes over token ids, and clients send text. Nothing is tokenised for that. When an engine has
// computed a prompt that this process sent, it has also stored a chain of blocks that is as long as the prompt. So the
// chain is the prompt's, and each mark of the prompt, see prefix.Table, belongs to a block of the chain. From then on an
// event about such a block, of any engine, is one about these marks.
package kvevents
