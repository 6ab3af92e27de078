"""The certificate manager: what to request, when to rotate, and where certificates are kept."""
