-- Argo CD's health of CompositeControllers and DecoratorControllers: resource.customizations.health of both kinds.
local health = { status = "Progressing", message = "no server has looked at this definition yet" }

if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Ready" then
    health.message = condition.reason .. ": " .. (condition.message or "")
    if condition.status == "True" then
      health.status = "Healthy"
    elseif condition.reason == "Paused" then
      health.status = "Suspended"
    end
  elseif condition.type == "Stalled" and condition.status == "True" then
    health.status = "Degraded"
  end
end
return health
