"""Events about objects, for users."""
