package config

import "slices"

// liveKeys are the keys that a reload puts in force, besides those of the router and of client keys. The other timeouts
// and limits belong to listeners and connections that are made once.
func liveKeys() []string {
	return []string{
		"log.level",
		"timeouts.body", "timeouts.body_stall", "timeouts.encode", "timeouts.prefill", "timeouts.first_event", "timeouts.stream_idle", "timeouts.request",
		"timeouts.prefill_abort_grace", "timeouts.decode_abort_grace", "timeouts.drain_delay", "timeouts.drain",
		"limits.body", "limits.body_budget", "limits.answer_budget", "limits.client_share", "limits.client_in_flight", "limits.require_content_length",
	}
}

// NeedsRestart returns the paths of the keys that differ and that a reload cannot change.
func NeedsRestart(was, now Config) []string {
	now.Router = was.Router
	now.APIKeys, now.APIKeyFile, now.KeysFile = was.APIKeys, was.APIKeyFile, was.KeysFile
	return slices.DeleteFunc(ChangedKeys(was, now), func(path string) bool { return slices.Contains(liveKeys(), path) })
}
