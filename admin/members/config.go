package members

// Config says where run-time changes are kept.
type Config struct {
	// StateFile keeps the changes over a restart and a hand-over. Empty: they end with the process.
	StateFile string `mapstructure:"state_file"`
}
