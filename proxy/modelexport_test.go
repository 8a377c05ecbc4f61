package proxy

import (
	"time"

	"xpyd/engines"
)

// MaxModelKeys bounds ModelKeys.
const MaxModelKeys = engines.MaxModelKeys

// AskModelsWithin bounds the asking for one answer of /v1/models.
func (s *Server) AskModelsWithin(d time.Duration) { s.engines.Models.SetWithin(d) }

// AwaitingModels is how many clients wait for an answer of /v1/models.
func (s *Server) AwaitingModels() int { return s.engines.Models.Waiting() }

// ModelKeys is how many answers of /v1/models are kept.
func (s *Server) ModelKeys() int { return s.engines.Models.Kept() }
