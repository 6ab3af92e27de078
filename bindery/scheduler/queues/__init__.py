"""What Queue objects say: findings about their specs, and what their gangs hold and deserve."""
